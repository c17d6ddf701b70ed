"""More slaves: what a second one, and two more, add to the median of a synchronous send that waits for one."""

from __future__ import annotations

import shutil
import statistics
from contextlib import ExitStack
from pathlib import Path

from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.brokers import await_reached, slave_of
from tools.dev.bench.bed.figures import Results
from tools.dev.bench.bed.loads import run_load
from tools.dev.bench.works.latency import MESSAGES, SIZE

COUNTS = (1, 2, 4)
GOAL = 1.2


def _medians(directory: Path) -> list[tuple[float, float]]:
    """(p50, p99) with one slave, with two, with four: on one master, which more and more slaves join."""
    measured = []
    with ExitStack() as brokers:
        master = brokers.enter_context(LocalBroker(directory / "m", brokerRole="SYNC_MASTER"))
        running = 0
        for count in COUNTS:
            for number in range(running + 1, count + 1):
                brokers.enter_context(slave_of(master, directory / f"s{number}", number))
            running = count
            await_reached(master.counters().in_sync_slaves, count)
            load = run_load(master.store, "sync", SIZE, MESSAGES).producers[0]
            measured.append((load["p50_us"], load["p99_us"]))
    shutil.rmtree(directory)
    return measured


def measure(of: Asked, to: Results) -> None:
    """The medians of the runs, and each beside the one with a single slave."""
    runs = [_medians(of.scratch / f"slaves-{number}") for number in range(of.repeat)]
    middle = []
    for at, count in enumerate(COUNTS):
        p50, p99 = (statistics.median(run[at][value] for run in runs) for value in (0, 1))
        middle.append(p50)
        to.figure(f"sync-replicated send, 1 KB, {count} slave(s)", "slipstream", p50, "us", p99)
    for count, p50 in zip(COUNTS[1:], middle[1:], strict=True):
        to.at_most(f"median with {count} slaves", p50, middle[0], "1 slave", GOAL)
