"""SYNC_FLUSH: sixteen producers against one, each put waiting for the disk: one fdatasync answers many."""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path

from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results, medians
from tools.dev.bench.bed.loads import run_load

SIZE, PRODUCERS = 128, 16
MESSAGES = {1: 8_000, PRODUCERS: 128_000}
GOAL = 8.0


def _once(home: Path) -> list[tuple[float, float, float]]:
    """(messages a second, their median in microseconds, messages each fdatasync): of one producer, of sixteen."""
    measured = []
    with LocalBroker(home, brokerRole="ASYNC_MASTER", flushDiskType="SYNC_FLUSH") as broker:
        counters = broker.counters()
        for producers, messages in MESSAGES.items():
            flushes, put = counters.log_flushes.read(), counters.put_messages.read()
            load = run_load(broker.store, "sync", SIZE, messages, producers)
            grouped = (counters.put_messages.read() - put) / (counters.log_flushes.read() - flushes)
            p50 = statistics.median(report["p50_us"] for report in load.producers)
            measured.append((load.messages_per_second, p50, grouped))
    shutil.rmtree(home)
    return measured


def measure(of: Asked, to: Results) -> None:
    """Measure one producer and sixteen in turn on one broker; medians of the runs."""
    runs = [_once(of.scratch / f"sync-flush-{number}") for number in range(of.repeat)]
    rates = []
    for at, producers in enumerate(MESSAGES):
        rate, p50, grouped = medians(run[at] for run in runs)
        note = f"p50 {p50:,.0f} us, {grouped:.1f} messages each fdatasync"
        to.figure(f"SYNC_FLUSH put 128 B, {producers} producer(s)", "slipstream", rate, "msg/s", note=note)
        rates.append(rate)
    one, many = rates
    to.at_least(f"SYNC_FLUSH, {PRODUCERS} producers", many, one, "1 producer", GOAL)
