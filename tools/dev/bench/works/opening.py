"""Opening: how long a broker takes until it is ready on a store of 2 GiB, and of 20 GiB, after kill -9 under load.

The stores are written by the broker itself, with keys: queues, index and checkpoint are what a running broker leaves.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from ipc.module_names import named
from store.reading import extent
from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.figures import Figure, Ratio
from tools.dev.bench.bed.loads import run_load

GIB, MIB = 1 << 30, 1 << 20
SIZES_GIB = (2, 20)
BODY_BYTES, RECORD_BYTES = 1024, 1150
TAIL_BYTES = 256 * MIB  # appended before the kill
DISK_SHARE = 1.2  # index and queues beside the log
GOAL = 4 / 3
RECOVERED = re.compile(r"recovered: .* in (\d+) ms")


def _fill(directory: Path, size_bytes: int) -> None:
    with LocalBroker(directory, brokerRole="ASYNC_MASTER") as broker:
        run_load(broker.store, "keyed", BODY_BYTES, max(1, size_bytes // RECORD_BYTES), producers=1)


def _kill_under_load(directory: Path) -> None:
    """Start, load, SIGKILL of the supervisor in the middle of it: its processes die with it."""
    with LocalBroker(directory, brokerRole="ASYNC_MASTER") as broker:
        counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)
        end = counters.max_physical_offset.read() + TAIL_BYTES
        command = [sys.executable, "-m", named("tools.dev.bench.bed.load"), str(broker.store), "--work", "keyed"]
        command += ["--size", str(BODY_BYTES), "--messages", str(1 << 30)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, **pipes) as load:
            assert load.stdin is not None
            load.stdin.write(b"go\n")
            load.stdin.flush()
            while (seen := counters.max_physical_offset.read()) < end and load.poll() is None:
                waiting.await_change(counters.max_physical_offset, seen, 100)
            broker.process.kill()
            broker.process.wait()
            load.kill()
        counters.region.close()


def _open(directory: Path) -> tuple[float, float]:
    """(milliseconds until it is ready, of these in recovery)."""
    log = directory / "broker.log"
    before = log.stat().st_size
    began = time.monotonic_ns()
    with LocalBroker(directory, brokerRole="ASYNC_MASTER"):
        ready = (time.monotonic_ns() - began) / 1e6
        times = RECOVERED.findall(log.read_text()[before:])
    return ready, float(times[-1])


def measure(directory: Path, repeat: int, sizes_gib: tuple[float, ...] = SIZES_GIB) -> tuple[list[Figure], list[Ratio]]:
    """Measure the opening of each size; medians of `repeat` kills. Skips with a note where the disk has no room."""
    free_gib = shutil.disk_usage(directory).free / GIB
    if free_gib < DISK_SHARE * max(sizes_gib):
        note = f"left out: {DISK_SHARE * max(sizes_gib):.0f} GiB are needed in {directory}, {free_gib:.0f} are free"
        return [Figure("opening after kill -9", "slipstream", float("nan"), "ms", note=note)], []
    figures, medians = [], []
    for size in sizes_gib:
        store = directory / f"opening-{size}"
        _fill(store, int(size * GIB))
        runs = []
        for _ in range(repeat):
            _kill_under_load(store)
            runs.append(_open(store))
        ready, recovery = (statistics.median(column) for column in zip(*runs, strict=True))
        medians.append((ready, recovery))
        name = f"opening {size:g} GiB after kill -9"
        figures.append(Figure(name, "slipstream", ready, "ms", note=f"recovery {recovery:,.0f} ms"))
        shutil.rmtree(store)
    (small, small_recovery), (large, large_recovery) = medians[0], medians[-1]
    against = f"{sizes_gib[0]:g} GiB"
    return figures, [
        Ratio(f"opening {sizes_gib[-1]:g} GiB", large, small, against, GOAL, False),
        Ratio(f"recovery of {sizes_gib[-1]:g} GiB", large_recovery, small_recovery, against, GOAL, False),
    ]
