"""Sends through the front door, beside a real RocketMQ broker: the same load on either in turn, in one run.

CPU seconds of all of a broker's processes a message stand first: the load shares the machine's cores, so messages a
second and latencies say as much about what else runs there.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tools.common.local_broker import LocalBroker, free_port
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.brokers import slave_of
from tools.dev.bench.bed.cpu_time import cpu_seconds
from tools.dev.bench.bed.figures import Results, in_turn
from tools.dev.bench.bed.front_load import Sending, Sent, compiled, send
from tools.dev.bench.bed.machine import rest_disk
from tools.dev.bench.bed.rocketmq import RealBroker, RealNameServer

LOADS = (
    Sending(1, 1, 128),
    Sending(1, 1, 1024),
    Sending(16, 1, 128),
    Sending(16, 1, 1024),
    Sending(64, 4, 128),
    Sending(64, 4, 1024),
    Sending(64, 4, 1024, form="binary"),
    Sending(16, 1, 128, batch=32),
)
FLUSHED = (Sending(16, 1, 1024), Sending(64, 4, 1024))
REPLICATED = (Sending(1, 1, 1024), Sending(16, 1, 1024), Sending(64, 4, 1024))
SECONDS_ALONE, SECONDS = 8_000, 60_000  # messages of a load with one in flight, and of the others
TRIES = 30  # of a load that is refused; a slave of RocketMQ's needs 5 s to begin
WARM_FIRST = 40_000  # until a JVM has compiled what it needs
CPU_GOAL, RATE_GOAL, BATCH_GOAL, P50_GOAL, P99_GOAL = 0.6, 1.5, 3.0, 1.0, 0.5
LINES = {"4.9": "rocketmq 4.9", "5": "rocketmq 5"}
TOPIC = "bench"


class Running(NamedTuple):
    """A broker that serves: its port, the process that started its others, and its folder."""

    port: int
    pid: int
    home: Path


@contextmanager
def beside_each_other(of: Asked, home: Path, compat: str, **keys: Any) -> Iterator[dict[str, Running]]:
    """Run a Slipstream broker of a line, and RocketMQ's where it is at hand, in a folder that is removed at the end."""
    with ExitStack() as brokers:
        brokers.callback(shutil.rmtree, home)
        ours = brokers.enter_context(LocalBroker(home / "ours", compat=compat, **keys))
        sides = {"slipstream": Running(ours.port, ours.process.pid, home / "ours")}
        if of.rocketmq is not None:
            real = RealBroker(of.rocketmq, compat, home / "theirs", free_port(), **keys)
            theirs = brokers.enter_context(real)
            sides[LINES[compat]] = Running(theirs.port, theirs.pid, home / "theirs")
        yield sides


def measure(of: Asked, to: Results) -> None:
    """Ours of each line, and RocketMQ's where it is at hand."""
    program = compiled(of.scratch)
    for compat in LINES:
        for flush, loads in (("ASYNC_FLUSH", LOADS), ("SYNC_FLUSH", FLUSHED)):
            home = of.scratch / f"front-sends-{compat}-{flush}"
            with beside_each_other(of, home, compat, flushDiskType=flush) as sides:
                _compare(program, f"sends, {compat}, {flush}", loads, sides, of.repeat, to)
        with _replicated(of, of.scratch / f"front-sends-pairs-{compat}", compat) as sides:
            _compare(program, f"sends, {compat}, SYNC_MASTER", REPLICATED, sides, of.repeat, to)


@contextmanager
def _replicated(of: Asked, home: Path, compat: str) -> Iterator[dict[str, Running]]:
    """Run a SYNC_MASTER with a slave that it waits for, and RocketMQ's where it is at hand; the masters."""
    waits: dict[str, Any] = {"inSyncReplicas": 2} if compat == "5" else {}
    with ExitStack() as brokers:
        brokers.callback(shutil.rmtree, home)
        ours = brokers.enter_context(LocalBroker(home / "ours", compat=compat, brokerRole="SYNC_MASTER", **waits))
        brokers.enter_context(slave_of(ours, home / "our-slave", compat=compat))
        sides = {"slipstream": Running(ours.port, ours.process.pid, home / "ours")}
        if of.rocketmq is not None:
            theirs = _real_pair(brokers, of.rocketmq, compat, home, waits)
            sides[LINES[compat]] = Running(theirs.port, theirs.pid, home / "theirs")
        yield sides


def _real_pair(brokers: ExitStack, rocketmq: Path, compat: str, home: Path, waits: dict[str, Any]) -> RealBroker:
    """Return RocketMQ's master with a slave: 4.9 needs the master's address as a setting, 5.x a name server."""
    port = free_port()
    names: dict[str, Any] = {"haMasterAddress": f"127.0.0.1:{port + 1}"}
    if compat == "5":
        server = brokers.enter_context(RealNameServer(rocketmq, compat, home / "their-names", free_port()))
        names = {"namesrvAddr": f"127.0.0.1:{server.port}"}
    master = brokers.enter_context(
        RealBroker(rocketmq, compat, home / "theirs", port, role="SYNC_MASTER", **waits, **names)
    )
    brokers.enter_context(
        RealBroker(rocketmq, compat, home / "their-slave", free_port(), role="SLAVE", number=1, **names)
    )
    return master


def _warm(program: Path, port: int) -> None:
    """Send until a JVM has compiled what it needs; retry what is refused before the slave is there."""
    for left in reversed(range(TRIES)):
        try:
            send(program, port, Sending(16, 4, 128), TOPIC, 1000, WARM_FIRST)
            return
        except RuntimeError:
            if not left:
                raise


def _compare(
    program: Path, what: str, loads: tuple[Sending, ...], sides: dict[str, Running], repeat: int, to: Results
) -> None:
    for side in sides.values():
        _warm(program, side.port)
    for sending in loads:
        messages = SECONDS if sending.connections > 1 else SECONDS_ALONE

        def sent(side: Running, sending: Sending = sending, messages: int = messages) -> Sent:
            rest_disk()
            clock = lambda: cpu_seconds(side.pid)  # noqa: E731
            return send(program, side.port, sending, TOPIC, messages // 10, messages, clock)

        taken = {side: Sent(*of) for side, of in in_turn(sides, repeat, sent).items()}
        _report(f"{what}: {sending}", sending, taken, to)


def _report(work: str, sending: Sending, medians: dict[str, Sent], to: Results) -> None:
    for side, sent in medians.items():
        note = f"{sent.per_second:,.0f} messages/s, p50 {sent.p50_us:,.0f} us, p99 {sent.p99_us:,.0f} us"
        print(f"{work}: {side}: {sent.cpu_us:.1f} us CPU, {note}", file=sys.stderr)
        to.figure(work, side, sent.cpu_us, "us CPU a message", note=note)
    if len(medians) < 2:
        return
    (_, ours), (against, theirs) = medians.items()
    to.at_most(f"{work}: CPU", ours.cpu_us, theirs.cpu_us, against, CPU_GOAL)
    rate = BATCH_GOAL if sending.batch else RATE_GOAL if sending.connections > 1 else 1.0
    to.at_least(f"{work}: messages/s", ours.per_second, theirs.per_second, against, rate)
    if sending.connections == 1:
        to.at_most(f"{work}: p50", ours.p50_us, theirs.p50_us, against, P50_GOAL)
        to.at_most(f"{work}: p99", ours.p99_us, theirs.p99_us, against, P99_GOAL)
