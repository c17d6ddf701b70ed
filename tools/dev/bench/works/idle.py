"""Doing nothing: the CPU that an idle master with its slave takes, and the memory of every process."""

from __future__ import annotations

import shutil
import time

from engine.monitoring.status import snapshot
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.brokers import pair
from tools.dev.bench.bed.cpu_time import cpu_seconds
from tools.dev.bench.bed.figures import Results
from tools.dev.bench.bed.loads import run_load

SETTLE_SECONDS, WATCH_SECONDS = 15.0, 20.0
GOAL_PERCENT = 0.5
MIB = 1 << 20


def measure(of: Asked, to: Results) -> None:
    """Measure after some work, so that nothing is still being prepared."""
    home = of.scratch / "idle"
    with pair(home) as (master, slave):
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
        for name, percent in percents.items():
            to.figure("idle CPU", name, percent, "% of a core")
        for name, broker in brokers.items():
            for process in snapshot(broker.store).processes:
                to.figure("memory (PSS)", f"{name} {process.role}", process.pss_bytes / MIB, "MiB")
    shutil.rmtree(home)
    to.at_most("idle master and slave", sum(percents.values()), GOAL_PERCENT, f"{GOAL_PERCENT} % of a core")
