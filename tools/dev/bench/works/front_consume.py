"""Consumers at the front door, beside a real RocketMQ broker: a backlog, messages as they come, what a reader costs.

As `tools.dev.bench.works.front_sends`: the same load on either in turn, in one run; CPU seconds of all of a broker's
processes stand first.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import NamedTuple

from store import names
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.cpu_time import cpu_seconds
from tools.dev.bench.bed.figures import Results, in_turn
from tools.dev.bench.bed.front_load import (
    PULLS,
    Pulled,
    Pushed,
    Sending,
    compiled,
    following,
    push,
    read_backlog,
    send,
)
from tools.dev.bench.bed.machine import read_into_cache, rest_disk
from tools.dev.bench.works.front_sends import LINES, WARM_FIRST, beside_each_other

BACKLOG, FOLLOWED, PUSHED = "backlog", "followed", "pushed"
BACKLOG_MESSAGES = 4 << 20  # of 1 KiB: 4 GiB of bodies
FILLING, WARM_FILLING = Sending(16, 1, 1024, batch=32), 65_536
PUSHES, PUSH_US, WARM_PUSHES = 5_000, 1000, 3_000
SENDING, SENDS = Sending(16, 1, 1024), 120_000
PAIRS_LEAST = 4  # of sends with a reader and without: two runs alike differ by as much as the reader costs
RATE_GOAL, CPU_GOAL, P50_GOAL, P99_GOAL, COST_GOAL = 2.0, 0.5, 1.0, 0.5, 0.9


class Side(NamedTuple):
    """One broker with its store below `home`, and the programs that load it."""

    sends: Path
    pulls: Path
    port: int
    pid: int
    home: Path

    def _cpu(self) -> float:
        return cpu_seconds(self.pid)

    def warm(self) -> None:
        """Work until a JVM has compiled what it needs."""
        send(self.sends, self.port, Sending(16, 4, 128), FOLLOWED, 1000, WARM_FIRST)
        send(self.sends, self.port, FILLING, "warm", 1000, WARM_FILLING)
        read_backlog(self.pulls, self.port, "warm", self._cpu)
        send(self.sends, self.port, Sending(1, 1, 128), PUSHED, 0, 100)
        self.pushed(WARM_PUSHES)

    def fill(self) -> None:
        """Send the backlog that is read from the beginning later."""
        send(self.sends, self.port, FILLING, BACKLOG, 0, BACKLOG_MESSAGES)

    def backlog(self) -> Pulled:
        """Read all of it, out of memory: on a small machine the other's log has displaced a part of it."""
        read_into_cache(self.home / "store" / names.COMMIT_LOG)
        return read_backlog(self.pulls, self.port, BACKLOG, self._cpu)

    def pushed(self, messages: int = PUSHES) -> Pushed:
        """A thousand a second, as they come."""
        rest_disk()
        return push(self.pulls, self.port, PUSHED, messages, PUSH_US, self._cpu)

    def sent(self, *, is_followed: bool) -> float:
        """Messages a second of producers, with a consumer in step or without."""
        reader = following(self.pulls, self.port, FOLLOWED) if is_followed else nullcontext()
        with reader:
            return send(self.sends, self.port, SENDING, FOLLOWED, 1000, SENDS).per_second


def measure(of: Asked, to: Results) -> None:
    """Ours of each line, and RocketMQ's where it is at hand."""
    sends, pulls = compiled(of.scratch), compiled(of.scratch, PULLS)
    for compat in LINES:
        with beside_each_other(of, of.scratch / f"front-consume-{compat}", compat) as brokers:
            sides = {name: Side(sends, pulls, *broker) for name, broker in brokers.items()}
            _compare(compat, of.repeat, sides, to)


def _compare(compat: str, repeat: int, sides: dict[str, Side], to: Results) -> None:
    for side in sides.values():
        side.warm()
        side.fill()
    backlog = in_turn(sides, repeat, Side.backlog)
    pushed = in_turn(sides, repeat, Side.pushed)
    alone, followed = _rates_in_pairs(sides, max(repeat, PAIRS_LEAST))
    work = f"consumers, {compat}"
    for name in sides:
        read, (cpu_us, p50_us, p99_us) = Pulled(*backlog[name]), pushed[name]
        share = followed[name] / alone[name]
        note = f"{read.per_second:,.0f} messages/s, {read.mib_per_second:,.0f} MiB/s"
        to.figure(f"{work}: backlog of 4 GiB", name, read.cpu_us, "us CPU a message", note=note)
        note = f"p50 {p50_us:,.0f} us, p99 {p99_us:,.0f} us from send to listener"
        to.figure(f"{work}: 1,000 messages/s", name, cpu_us, "us CPU a message", note=note)
        to.figure(f"{work}: producers with a reader in step", name, share, "of their rate without")
    with_reader = f"{work}: producers' rate with a reader in step"
    to.at_least(with_reader, followed["slipstream"], alone["slipstream"], "without it", COST_GOAL)
    if len(sides) < 2:
        return
    mine, (against, other) = backlog["slipstream"], list(backlog.items())[1]
    to.at_least(f"{work}: backlog, messages/s", mine[1], other[1], against, RATE_GOAL)
    to.at_most(f"{work}: backlog, CPU", mine[0], other[0], against, CPU_GOAL)
    mine, other = pushed["slipstream"], pushed[against]
    to.at_most(f"{work}: send to listener, p50", mine[1], other[1], against, P50_GOAL)
    to.at_most(f"{work}: send to listener, p99", mine[2], other[2], against, P99_GOAL)


def _rates_in_pairs(sides: dict[str, Side], repeat: int) -> tuple[dict[str, float], dict[str, float]]:
    """Medians of sends a second without a reader and with one, in turn."""
    runs: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for _ in range(repeat):
        for is_followed, rates in runs.items():
            rates.append({name: side.sent(is_followed=is_followed) for name, side in sides.items()})
    alone, followed = ({name: median(one[name] for one in rates) for name in sides} for rates in runs.values())
    return alone, followed
