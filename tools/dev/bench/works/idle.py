"""Doing nothing: the CPU that an idle master with its slave takes, and the memory of every process."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from engine.monitoring.status import snapshot
from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.cpu_time import cpu_seconds
from tools.dev.bench.bed.figures import Figure, Ratio
from tools.dev.bench.bed.loads import run_load
from tools.dev.bench.works.latency import await_slaves

SETTLE_SECONDS, WATCH_SECONDS = 15.0, 20.0
GOAL_PERCENT = 0.5
MIB = 1 << 20


def measure(directory: Path) -> tuple[list[Figure], list[Ratio]]:
    """Measure after some work, so that nothing is still being prepared."""
    home = directory / "idle"
    with (
        LocalBroker(home / "m", brokerRole="SYNC_MASTER") as master,
        LocalBroker(home / "s", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address) as slave,
    ):
        await_slaves(master.store)
        run_load(master.store, "sync", 1024, 1000)
        time.sleep(SETTLE_SECONDS)
        brokers = {"master": master, "slave": slave}
        before = {name: cpu_seconds(broker.process.pid) for name, broker in brokers.items()}
        began = time.monotonic()
        time.sleep(WATCH_SECONDS)
        seconds = time.monotonic() - began
        percents = {
            name: (cpu_seconds(broker.process.pid) - before[name]) / seconds * 100 for name, broker in brokers.items()
        }
        figures = [Figure("idle CPU", name, percent, "% of a core") for name, percent in percents.items()]
        for name, broker in brokers.items():
            for process in snapshot(broker.store).processes:
                figures.append(Figure("memory (PSS)", f"{name} {process.role}", process.pss_bytes / MIB, "MiB"))
    shutil.rmtree(home)
    together = sum(percents.values())
    goal = f"{GOAL_PERCENT} % of a core"
    return figures, [Ratio("idle master and slave", together, GOAL_PERCENT, goal, 1.0, more_is_better=False)]
