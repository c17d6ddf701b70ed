"""Columnar side files: how fast they are built, how large they are, and what they cost a broker of its append rate.

Building is alone on a log in the page cache. Appends are those of `append`, from one process as fast as it can, on one
broker whose builder has segments to read all the time, and is stopped (SIGSTOP) for every other run.
"""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from spark_bridge.columnar import rounds
from store.upkeep import side_files
from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results
from tools.dev.bench.bed.loads import run_load
from tools.dev.bench.bed.log_store import LogWriter, read_through

BODIES = (128, 1024)
SEGMENT_BYTES, SEGMENTS = 256 << 20, 2
LOG_BYTES = SEGMENT_BYTES * SEGMENTS
APPENDED = {128: 4_000_000, 1024: 1_000_000}  # of one run
PAIRS_A_REPEAT = 2
APPEND_SEGMENT_BYTES = 64 << 20
GOAL = 0.9  # of the rate without


def measure(of: Asked, to: Results) -> None:
    """The figures for each size of bodies."""
    for size in BODIES:
        _build(of.scratch / f"side-{size}", size, of.repeat, to)
        runs, shares = _appending(of.scratch / f"side-{size}-broker", size, of.repeat * PAIRS_A_REPEAT)
        work = f"append {size} B, 1 producer"
        note = f"the builder took {median(shares):.0%} of a core meanwhile"
        best = {works: max(run.rate for run in those) for works, those in runs.items()}  # others only take away
        for works, subject in ((False, "without side files"), (True, "with side files")):
            to.figure(work, subject, best[works] / 1e6, "M msg/s", note=note if works else "")
            cpu_us = median(run.cpu_us for run in runs[works])
            to.figure(f"{work}: CPU of both ends", subject, cpu_us, "us/msg")
        to.at_least(f"{work}, side files built beside", best[True], best[False], "without", GOAL)


def _build(root: Path, size: int, repeat: int, to: Results) -> None:
    """Measure bytes of the log a second, and of the side files beside it."""
    records = LogWriter(root, SEGMENT_BYTES, (size, size)).write(SEGMENTS)
    read_through(root)  # the page cache
    taken = []
    for _ in range(repeat):
        shutil.rmtree(side_files.folder_of(root), ignore_errors=True)
        began = time.perf_counter()
        built = rounds.build_all(root)
        taken.append(time.perf_counter() - began)
        if sum(one.after.data.group_rows[0] > 0 for one in built) != SEGMENTS:
            raise SystemExit(f"{root}: not every segment has a side file")
    seconds, work = median(taken), f"side files, {size} B bodies"
    side_bytes = sum(one.after.data.file_bytes for one in built)
    shutil.rmtree(root)
    rate = f"{records / seconds / 1e6:.2f} M records/s"
    to.figure(f"{work}: built", "slipstream", LOG_BYTES / seconds / 1e6, "MB/s", note=rate)
    to.figure(f"{work}: size", "slipstream", side_bytes / records, "B/record", note=f"{side_bytes / LOG_BYTES:.2%}")


class Run(NamedTuple):
    """Messages a second, and CPU time of producer and writer for each."""

    rate: float
    cpu_us: float


def _appending(home: Path, size: int, pairs: int) -> tuple[dict[bool, list[Run]], list[float]]:
    """Runs while the builder is stopped and while it works, and how much of a core that took it."""
    runs: dict[bool, list[Run]] = {False: [], True: []}
    shares = []
    keys = {"brokerRole": "ASYNC_MASTER", "columnarSidecar": "true"}
    with LocalBroker(home, mappedFileSizeCommitLog=APPEND_SEGMENT_BYTES, **keys) as broker:
        counters = broker.counters()
        builder, writer = (psutil.Process(counters.pids[role].read()) for role in ("sidecar", "writer"))
        builder.send_signal(signal.SIGSTOP)
        run_load(broker.store, "batch", size, APPENDED[size], 1)  # for the builder to read
        for number in range(pairs):
            for works in (number % 2 == 0, number % 2 != 0):
                builder.send_signal(signal.SIGCONT if works else signal.SIGSTOP)
                before, of_writer, began = _cpu_seconds(builder), _cpu_seconds(writer), time.monotonic()
                load = run_load(broker.store, "batch", size, APPENDED[size], 1)
                cpu_seconds = _cpu_seconds(writer) - of_writer + load.producers[0]["cpu_seconds"]
                runs[works].append(Run(load.messages_per_second, cpu_seconds / load.messages * 1e6))
                if works:
                    shares.append((_cpu_seconds(builder) - before) / (time.monotonic() - began))
        builder.send_signal(signal.SIGCONT)
    shutil.rmtree(home)
    return runs, shares


def _cpu_seconds(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))
