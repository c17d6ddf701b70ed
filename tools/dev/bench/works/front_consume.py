"""Consumers at the front door, beside a real RocketMQ broker: a backlog, messages as they come, what a reader costs.

As `tools.dev.bench.works.front_sends`: the same load on either in turn, in one run; CPU seconds of all of a broker's
processes stand first.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median

from store import names
from tools.common.local_broker import LocalBroker, free_port
from tools.dev.bench.bed.cpu_time import cpu_seconds
from tools.dev.bench.bed.figures import Figure, Ratio
from tools.dev.bench.bed.front_load import Sending, compiled, send
from tools.dev.bench.bed.machine import read_into_cache, rest_disk
from tools.dev.bench.bed.peers import Peers
from tools.dev.bench.bed.pull_load import PULLS, Pulled, Pushed, following, push, read_backlog
from tools.dev.bench.bed.rocketmq import RealBroker
from tools.dev.bench.works.front_sends import LINES, WARM_FIRST

BACKLOG, FOLLOWED, PUSHED = "backlog", "followed", "pushed"
BACKLOG_MESSAGES = 4 << 20  # of 1 KiB: 4 GiB of bodies
FILLING, WARM_FILLING = Sending(16, 1, 1024, batch=32), 65_536
PUSHES, PUSH_US, WARM_PUSHES = 5_000, 1000, 3_000
SENDING, SENDS = Sending(16, 1, 1024), 120_000
PAIRS_LEAST = 4  # of sends with a reader and without: two runs alike differ by as much as the reader costs
RATE_GOAL, CPU_GOAL, P50_GOAL, P99_GOAL, COST_GOAL = 2.0, 0.5, 1.0, 0.5, 0.9


class Side:
    """One broker with its store below `home`, and the programs that load it."""

    def __init__(self, sends: Path, pulls: Path, port: int, pid: int, home: Path) -> None:
        self._sends, self._pulls, self._port, self._pid, self._home = sends, pulls, port, pid, home

    def _cpu(self) -> float:
        return cpu_seconds(self._pid)

    def warm(self) -> None:
        """Work until a JVM has compiled what it needs."""
        send(self._sends, self._port, Sending(16, 4, 128), FOLLOWED, 1000, WARM_FIRST, self._cpu)
        send(self._sends, self._port, FILLING, "warm", 1000, WARM_FILLING, self._cpu)
        read_backlog(self._pulls, self._port, "warm", self._cpu)
        send(self._sends, self._port, Sending(1, 1, 128), PUSHED, 0, 100, self._cpu)
        self.pushed(WARM_PUSHES)

    def fill(self) -> None:
        """Send the backlog that is read from the beginning later."""
        send(self._sends, self._port, FILLING, BACKLOG, 0, BACKLOG_MESSAGES, self._cpu)

    def backlog(self) -> Pulled:
        """Read all of it, out of memory: on a small machine the other's log has displaced a part of it."""
        read_into_cache(self._home / "store" / names.COMMIT_LOG)
        return read_backlog(self._pulls, self._port, BACKLOG, self._cpu)

    def pushed(self, messages: int = PUSHES) -> Pushed:
        """A thousand a second, as they come."""
        rest_disk()
        return push(self._pulls, self._port, PUSHED, messages, PUSH_US, self._cpu)

    def sent(self, *, is_followed: bool) -> float:
        """Messages a second of producers, with a consumer in step or without."""
        reader = following(self._pulls, self._port, FOLLOWED) if is_followed else nullcontext()
        with reader:
            return send(self._sends, self._port, SENDING, FOLLOWED, 1000, SENDS, self._cpu).per_second


def measure(directory: Path, _peers: Peers, rocketmq: Path | None, repeat: int) -> tuple[list[Figure], list[Ratio]]:
    """Ours of each line, and RocketMQ's where it is at hand."""
    sends, pulls = compiled(directory), compiled(directory, PULLS)
    figures: list[Figure] = []
    ratios: list[Ratio] = []
    for compat in LINES:
        home = directory / f"front-consume-{compat}"
        with LocalBroker(home / "ours", compat=compat) as ours:
            sides = {"slipstream": Side(sends, pulls, ours.port, ours.process.pid, home / "ours")}
            if rocketmq is None:
                _compare(compat, repeat, sides, figures, ratios)
            else:
                with RealBroker(rocketmq, compat, home / "theirs", free_port()) as theirs:
                    sides[LINES[compat]] = Side(sends, pulls, theirs.port, theirs.pid, home / "theirs")
                    _compare(compat, repeat, sides, figures, ratios)
        shutil.rmtree(home)
    return figures, ratios


def _compare(compat: str, repeat: int, sides: dict[str, Side], figures: list[Figure], ratios: list[Ratio]) -> None:
    for side in sides.values():
        side.warm()
        side.fill()
    backlog = _medians(sides, repeat, Side.backlog)
    pushed = _medians(sides, repeat, Side.pushed)
    alone, followed = _rates_in_pairs(sides, max(repeat, PAIRS_LEAST))
    work = f"consumers, {compat}"
    for name in sides:
        read, (cpu_us, p50_us, p99_us) = Pulled(*backlog[name]), pushed[name]
        share = followed[name] / alone[name]
        note = f"{read.per_second:,.0f} messages/s, {read.mib_per_second:,.0f} MiB/s"
        figures.append(Figure(f"{work}: backlog of 4 GiB", name, read.cpu_us, "us CPU a message", note=note))
        note = f"p50 {p50_us:,.0f} us, p99 {p99_us:,.0f} us from send to listener"
        figures.append(Figure(f"{work}: 1,000 messages/s", name, cpu_us, "us CPU a message", note=note))
        figures.append(Figure(f"{work}: producers with a reader in step", name, share, "of their rate without"))
    with_reader = f"{work}: producers' rate with a reader in step"
    ratios.append(Ratio(with_reader, followed["slipstream"], alone["slipstream"], "without it", COST_GOAL))
    if len(sides) < 2:
        return
    mine, (against, other) = backlog["slipstream"], list(backlog.items())[1]
    lower = {"more_is_better": False}
    ratios.append(Ratio(f"{work}: backlog, messages/s", mine[1], other[1], against, RATE_GOAL))
    ratios.append(Ratio(f"{work}: backlog, CPU", mine[0], other[0], against, CPU_GOAL, **lower))
    mine, other = pushed["slipstream"], pushed[against]
    ratios.append(Ratio(f"{work}: send to listener, p50", mine[1], other[1], against, P50_GOAL, **lower))
    ratios.append(Ratio(f"{work}: send to listener, p99", mine[2], other[2], against, P99_GOAL, **lower))


def _rates_in_pairs(sides: dict[str, Side], repeat: int) -> tuple[dict[str, float], dict[str, float]]:
    """Medians of sends a second without a reader and with one, in turn."""
    runs: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for _ in range(repeat):
        for is_followed, rates in runs.items():
            rates.append({name: side.sent(is_followed=is_followed) for name, side in sides.items()})
    alone, followed = ({name: median(one[name] for one in rates) for name in sides} for rates in runs.values())
    return alone, followed


def _medians(
    sides: dict[str, Side], repeat: int, measured: Callable[[Side], tuple[float, ...]]
) -> dict[str, tuple[float, ...]]:
    """Return the medians of each side, measured in turn."""
    runs: dict[str, list[tuple[float, ...]]] = {name: [] for name in sides}
    for _ in range(repeat):
        for name, side in sides.items():
            runs[name].append(measured(side))
    return {name: tuple(map(median, zip(*of, strict=True))) for name, of in runs.items()}
