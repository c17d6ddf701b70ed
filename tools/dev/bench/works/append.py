"""Appending: batches from one and two producer processes, and one message at a time without waiting."""

from __future__ import annotations

import shutil
import statistics

from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results, medians
from tools.dev.bench.bed.loads import run_load
from tools.dev.bench.bed.machine import warm_memory

WORKS = ((128, 1), (128, 2), (1024, 1), (1024, 2))
MESSAGES = {128: 4_000_000, 1024: 800_000}
SEND_GOAL_US = 5.0


def measure(of: Asked, to: Results) -> None:
    """Measure slipstream and Chronicle Queue in turn; medians of the runs."""
    ours: dict[tuple[int, int], list[float]] = {work: [] for work in WORKS}
    nowait: list[tuple[float, float]] = []
    for number in range(of.repeat):
        home = of.scratch / f"append-{number}"
        with LocalBroker(home, brokerRole="ASYNC_MASTER") as broker:
            for size, producers in WORKS:
                warm_memory()
                load = run_load(broker.store, "batch", size, MESSAGES[size], producers)
                ours[size, producers].append(load.messages_per_second)
            report = run_load(broker.store, "nowait", 128, 100_000).producers[0]
            nowait.append((report["p50_us"], report["p99_us"]))
        shutil.rmtree(home)
        warm_memory()
        of.peers.run("chronicle", "append-1,append-processes", directory=of.scratch)
    for (size, producers), rates in ours.items():
        rate, name = statistics.median(rates), f"append {size} B, {producers} producer(s)"
        to.figure(name, "slipstream", rate / 1e6, "M msg/s", note=f"{rate * size / 1e6:,.0f} MB/s")
        work = "append-processes" if producers == 2 else "append"
        theirs = of.peers.figure(
            "msgs_per_s", work=work, peer="chronicle-queue", message_bytes=size, producers=producers
        )
        if theirs is not None:
            to.figure(name, "chronicle", theirs / 1e6, "M msg/s", note=f"{theirs * size / 1e6:,.0f} MB/s")
            to.at_least(name, rate, theirs, "chronicle")
    p50, p99 = medians(nowait)
    to.figure("one send without waiting, 128 B", "slipstream", p50, "us", p99, "of the caller's time")
    to.at_most("one send without waiting", p50, SEND_GOAL_US, "5 us")
