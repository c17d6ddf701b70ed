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

from engine.shared_memory.cursors import BrokerCounters
from spark_bridge.columnar import rounds
from store.reading import extent
from store.upkeep import side_files
from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.figures import Figure, Ratio
from tools.dev.bench.bed.loads import run_load
from tools.dev.bench.bed.log_store import LogWriter, read_through

BODIES = (128, 1024)
SEGMENT_BYTES, SEGMENTS = 256 << 20, 2
LOG_BYTES = SEGMENT_BYTES * SEGMENTS
APPENDED = {128: 4_000_000, 1024: 1_000_000}  # of one run
PAIRS_A_REPEAT = 2
APPEND_SEGMENT_BYTES = 64 << 20
GOAL = 0.9  # of the rate without


def measure(scratch: Path, repeat: int) -> tuple[list[Figure], list[Ratio]]:
    """The figures for each size of bodies."""
    figures, ratios = [], []
    for size in BODIES:
        figures += _building(scratch / f"side-{size}", size, repeat)
        runs, shares = _appending(scratch / f"side-{size}-broker", size, repeat * PAIRS_A_REPEAT)
        work = f"append {size} B, 1 producer"
        note = f"the builder took {median(shares):.0%} of a core meanwhile"
        for works, subject in ((False, "without side files"), (True, "with side files")):
            rate, cpu_us = max(run.rate for run in runs[works]), median(run.cpu_us for run in runs[works])
            figures.append(Figure(work, subject, rate / 1e6, "M msg/s", note=note if works else ""))
            figures.append(Figure(f"{work}: CPU of both ends", subject, cpu_us, "us/msg"))
        without, beside = (max(run.rate for run in runs[works]) for works in (False, True))  # others only take away
        ratios.append(Ratio(f"{work}, side files built beside", beside, without, "without", GOAL))
    return figures, ratios


def _building(root: Path, size: int, repeat: int) -> list[Figure]:
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
    return [
        Figure(f"{work}: built", "slipstream", LOG_BYTES / seconds / 1e6, "MB/s", note=rate),
        Figure(f"{work}: size", "slipstream", side_bytes / records, "B/record", note=f"{side_bytes / LOG_BYTES:.2%}"),
    ]


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
        counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory)
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
