"""SYNC_FLUSH: sixteen producers against one, each put waiting for the disk: one fdatasync answers many."""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path

from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.figures import Figure, Ratio
from tools.dev.bench.bed.loads import run_load

SIZE, PRODUCERS = 128, 16
MESSAGES = {1: 8_000, PRODUCERS: 128_000}
GOAL = 8.0


def measure(directory: Path, repeat: int) -> tuple[list[Figure], list[Ratio]]:
    """Measure one producer and sixteen in turn on one broker, and return medians of `repeat` runs."""
    rates: dict[int, list[float]] = {producers: [] for producers in MESSAGES}
    medians: dict[int, list[float]] = {producers: [] for producers in MESSAGES}
    grouped: dict[int, list[float]] = {producers: [] for producers in MESSAGES}
    for number in range(repeat):
        home = directory / f"sync-flush-{number}"
        with LocalBroker(home, brokerRole="ASYNC_MASTER", flushDiskType="SYNC_FLUSH") as broker:
            counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory)
            for producers, messages in MESSAGES.items():
                flushes, put = counters.log_flushes.read(), counters.put_messages.read()
                load = run_load(broker.store, "sync", SIZE, messages, producers)
                grouped[producers].append(
                    (counters.put_messages.read() - put) / (counters.log_flushes.read() - flushes)
                )
                rates[producers].append(load.messages_per_second)
                medians[producers].append(statistics.median(report["p50_us"] for report in load.producers))
        shutil.rmtree(home)
    figures = [
        Figure(
            f"SYNC_FLUSH put 128 B, {producers} producer(s)",
            "slipstream",
            statistics.median(series),
            "msg/s",
            note=f"p50 {statistics.median(medians[producers]):,.0f} us, "
            f"{statistics.median(grouped[producers]):.1f} messages each fdatasync",
        )
        for producers, series in rates.items()
    ]
    one, many = (statistics.median(rates[producers]) for producers in MESSAGES)
    return figures, [Ratio(f"SYNC_FLUSH, {PRODUCERS} producers", many, one, "1 producer", GOAL)]
