"""More slaves: what a second one, and two more, add to the median of a synchronous send that waits for one."""

from __future__ import annotations

import shutil
import statistics
from contextlib import ExitStack
from pathlib import Path

from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.figures import Figure, Ratio
from tools.dev.bench.bed.loads import run_load
from tools.dev.bench.works.latency import MESSAGES, SIZE, await_slaves

COUNTS = (1, 2, 4)
GOAL = 1.2


def _medians(directory: Path) -> list[tuple[float, float]]:
    """(p50, p99) with one slave, with two, with four: on one master, which more and more slaves join."""
    medians = []
    with ExitStack() as brokers:
        master = brokers.enter_context(LocalBroker(directory / "m", brokerRole="SYNC_MASTER"))
        running = 0
        for count in COUNTS:
            for number in range(running + 1, count + 1):
                slave = LocalBroker(
                    directory / f"s{number}", brokerRole="SLAVE", brokerId=number, haMasterAddress=master.ha_address
                )
                brokers.enter_context(slave)
            running = count
            await_slaves(master.store, count)
            load = run_load(master.store, "sync", SIZE, MESSAGES).producers[0]
            medians.append((load["p50_us"], load["p99_us"]))
    shutil.rmtree(directory)
    return medians


def measure(directory: Path, repeat: int) -> tuple[list[Figure], list[Ratio]]:
    """The medians of `repeat` runs, and each beside the one with a single slave."""
    runs = [_medians(directory / f"slaves-{number}") for number in range(repeat)]
    figures, medians = [], []
    for at, count in enumerate(COUNTS):
        p50, p99 = (statistics.median(run[at][value] for run in runs) for value in (0, 1))
        medians.append(p50)
        figures.append(Figure(f"sync-replicated send, 1 KB, {count} slave(s)", "slipstream", p50, "us", p99))
    ratios = [
        Ratio(f"median with {count} slaves", p50, medians[0], "1 slave", GOAL, more_is_better=False)
        for count, p50 in zip(COUNTS[1:], medians[1:], strict=True)
    ]
    return figures, ratios
