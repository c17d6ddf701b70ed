"""Sends through the front door, beside a real RocketMQ broker: the same load on either in turn, in one run.

CPU seconds of all of a broker's processes a message stand first: the load shares the machine's cores, so messages a
second and latencies say as much about what else runs there.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from tools.common.local_broker import LocalBroker, free_port
from tools.dev.bench.bed.cpu_time import cpu_seconds
from tools.dev.bench.bed.figures import Figure, Ratio
from tools.dev.bench.bed.front_load import Sending, Sent, compiled, send
from tools.dev.bench.bed.machine import rest_disk
from tools.dev.bench.bed.peers import Peers
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


class _Run(NamedTuple):
    """What all measurements of one line share; they add to `figures` and `ratios`."""

    program: Path
    compat: str
    rocketmq: Path | None
    repeat: int
    figures: list[Figure]
    ratios: list[Ratio]


def measure(directory: Path, _peers: Peers, rocketmq: Path | None, repeat: int) -> tuple[list[Figure], list[Ratio]]:
    """Ours of each line, and RocketMQ's where it is at hand."""
    program = compiled(directory)
    figures: list[Figure] = []
    ratios: list[Ratio] = []
    for compat in LINES:
        run = _Run(program, compat, rocketmq, repeat, figures, ratios)
        for flush, loads in (("ASYNC_FLUSH", LOADS), ("SYNC_FLUSH", FLUSHED)):
            _measure_pair(run, directory, flush, loads)
        _measure_replicated(run, directory)
    return figures, ratios


def _measure_replicated(run: _Run, directory: Path) -> None:
    """A SYNC_MASTER with a slave that it waits for, CPU of the master alone."""
    compat, rocketmq = run.compat, run.rocketmq
    home = directory / f"front-sends-pairs-{compat}"
    waits: dict[str, Any] = {"inSyncReplicas": 2} if compat == "5" else {}
    with ExitStack() as brokers:
        ours = brokers.enter_context(LocalBroker(home / "ours", compat=compat, brokerRole="SYNC_MASTER", **waits))
        brokers.enter_context(
            LocalBroker(
                home / "our-slave", compat=compat, brokerRole="SLAVE", brokerId=1, haMasterAddress=ours.ha_address
            )
        )
        sides = {"slipstream": (ours.port, ours.process.pid)}
        if rocketmq is not None:
            theirs = _real_pair(brokers, rocketmq, compat, home, waits)
            sides[LINES[compat]] = (theirs.port, theirs.pid)
        _compare(run, "SYNC_MASTER", REPLICATED, sides)
    shutil.rmtree(home)


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


def _measure_pair(run: _Run, directory: Path, flush: str, loads: tuple[Sending, ...]) -> None:
    compat, rocketmq = run.compat, run.rocketmq
    home = directory / f"front-sends-{compat}-{flush}"
    with LocalBroker(home / "ours", compat=compat, flushDiskType=flush) as ours:
        sides = {"slipstream": (ours.port, ours.process.pid)}
        if rocketmq is None:
            _compare(run, flush, loads, sides)
        else:
            with RealBroker(rocketmq, compat, home / "theirs", free_port(), flushDiskType=flush) as theirs:
                sides[LINES[compat]] = (theirs.port, theirs.pid)
                _compare(run, flush, loads, sides)
    shutil.rmtree(home)


def _warm(program: Path, port: int) -> None:
    """Send until a JVM has compiled what it needs; retry what is refused before the slave is there."""
    for left in reversed(range(TRIES)):
        try:
            send(program, port, Sending(16, 4, 128), TOPIC, 1000, WARM_FIRST, lambda: 0.0)
            return
        except RuntimeError:
            if not left:
                raise


def _compare(run: _Run, flush: str, loads: tuple[Sending, ...], sides: dict[str, tuple[int, int]]) -> None:
    program = run.program
    for port, _pid in sides.values():
        _warm(program, port)
    for sending in loads:
        messages = SECONDS if sending.connections > 1 else SECONDS_ALONE
        taken: dict[str, list[Sent]] = {side: [] for side in sides}
        for _ in range(run.repeat):
            for side, (port, pid) in sides.items():
                clock = lambda pid=pid: cpu_seconds(pid)  # noqa: E731
                rest_disk()
                taken[side].append(send(program, port, sending, TOPIC, messages // 10, messages, clock))
        medians = {side: Sent(*map(statistics.median, zip(*runs, strict=True))) for side, runs in taken.items()}
        _report(f"sends, {run.compat}, {flush}: {sending}", sending, medians, run.figures, run.ratios)


def _report(work: str, sending: Sending, medians: dict[str, Sent], figures: list[Figure], ratios: list[Ratio]) -> None:
    for side, sent in medians.items():
        note = f"{sent.per_second:,.0f} messages/s, p50 {sent.p50_us:,.0f} us, p99 {sent.p99_us:,.0f} us"
        print(f"{work}: {side}: {sent.cpu_us:.1f} us CPU, {note}", file=sys.stderr)
        figures.append(Figure(work, side, sent.cpu_us, "us CPU a message", note=note))
    if len(medians) < 2:
        return
    (_, ours), (against, theirs) = medians.items()
    ratios.append(Ratio(f"{work}: CPU", ours.cpu_us, theirs.cpu_us, against, CPU_GOAL, more_is_better=False))
    rate = BATCH_GOAL if sending.batch else RATE_GOAL if sending.connections > 1 else 1.0
    ratios.append(Ratio(f"{work}: messages/s", ours.per_second, theirs.per_second, against, rate))
    if sending.connections == 1:
        ratios.append(Ratio(f"{work}: p50", ours.p50_us, theirs.p50_us, against, P50_GOAL, more_is_better=False))
        ratios.append(Ratio(f"{work}: p99", ours.p99_us, theirs.p99_us, against, P99_GOAL, more_is_better=False))
