"""Opening: how long a broker takes until it is ready on a store of 2 GiB, and of 20 GiB, after kill -9 under load.

The stores are written by the broker itself, with keys: queues, index and checkpoint are what a running broker leaves.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.brokers import await_reached
from tools.dev.bench.bed.figures import Results, medians
from tools.dev.bench.bed.loads import load_command, run_load
from tools.dev.bench.bed.programs import begin, program

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
        counters = broker.counters()
        end = counters.max_physical_offset.read() + TAIL_BYTES
        with program(load_command(broker.store, "keyed", BODY_BYTES, 1 << 30)) as load:
            begin(load)
            await_reached(counters.max_physical_offset, end)
            broker.process.kill()
            broker.process.wait()
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


def measure(of: Asked, to: Results) -> None:
    """Measure the opening of each size; medians of the kills. Skips with a note where the disk has no room."""
    free_gib = shutil.disk_usage(of.scratch).free / GIB
    if free_gib < DISK_SHARE * max(SIZES_GIB):
        note = f"left out: {DISK_SHARE * max(SIZES_GIB):.0f} GiB are needed in {of.scratch}, {free_gib:.0f} are free"
        to.figure("opening after kill -9", "slipstream", float("nan"), "ms", note=note)
        return
    taken = []
    for size in SIZES_GIB:
        store = of.scratch / f"opening-{size}"
        _fill(store, int(size * GIB))
        runs = []
        for _ in range(of.repeat):
            _kill_under_load(store)
            runs.append(_open(store))
        ready, recovery = medians(runs)
        taken.append((ready, recovery))
        name = f"opening {size:g} GiB after kill -9"
        to.figure(name, "slipstream", ready, "ms", note=f"recovery {recovery:,.0f} ms")
        shutil.rmtree(store)
    (small, small_recovery), (large, large_recovery) = taken[0], taken[-1]
    against = f"{SIZES_GIB[0]:g} GiB"
    to.at_most(f"opening {SIZES_GIB[-1]:g} GiB", large, small, against, GOAL)
    to.at_most(f"recovery of {SIZES_GIB[-1]:g} GiB", large_recovery, small_recovery, against, GOAL)
