"""What two executors of one host take of its memory when both hold all of a store mapped: one copy of the pages.

Two Python workers of Spark scan the whole log at once without copying bodies, keep their batches, wait for each other,
and then look at what the kernel counts for the segments in each: Rss, all pages that are mapped; Pss, a page's share
among those that map it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow.compute as pc
from pyspark import BarrierTaskContext

from spark_bridge.driver import session
from spark_bridge.scanning import scan
from store.names import COMMIT_LOG
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results
from tools.dev.bench.bed.log_store import LogWriter

SEGMENT_BYTES, SEGMENTS, BODY_BYTES = 256 << 20, 2, 1024
WORKERS = 2
GOAL = 0.55  # half, and what one of them may hold a moment longer
KIB = 1024


def measure(of: Asked, to: Results) -> None:
    """Rss and Pss of the segments, of both workers together. Pages are counted, not timed: one run will do."""
    root = of.scratch / "shared-pages"
    LogWriter(root, SEGMENT_BYTES, (BODY_BYTES, BODY_BYTES)).write(SEGMENTS)
    spark = session("shared pages", f"local[{WORKERS}]")
    try:
        workers = spark.sparkContext.parallelize(range(WORKERS), WORKERS).barrier()
        counted = workers.mapPartitions(partial(_held, str(root))).collect()
    finally:
        spark.stop()
    shutil.rmtree(root)
    if len({process for process, _rss, _pss in counted}) != WORKERS:
        raise SystemExit(f"the tasks ran in {counted}, not in {WORKERS} processes")
    rss, pss = (sum(worker[place] for worker in counted) for place in (1, 2))
    work = f"segments mapped by {WORKERS} workers of Spark"
    to.figure(work, "Rss", rss / (1 << 20), "MiB")
    to.figure(work, "Pss", pss / (1 << 20), "MiB")
    to.at_most(work, pss, rss, "Rss", GOAL)


def _held(root: str, _partition: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Yield a worker's process, with Rss and Pss of the log's segments once all workers hold all of it."""
    batches = list(scan(root, columns=["body"], zero_copy=True))
    touched = sum(pc.sum(pc.binary_length(batch.column(0).cast("binary"))).as_py() for batch in batches)
    together = BarrierTaskContext.get()
    together.barrier()
    rss, pss = _counted(os.path.join(root, COMMIT_LOG))
    together.barrier()  # none lets go before all have looked
    if touched > rss:
        raise SystemExit(f"{touched} bytes of bodies lie in {rss} bytes of mapped pages")
    yield os.getpid(), rss, pss


def _counted(directory: str) -> tuple[int, int]:
    """Rss and Pss in bytes of this process's mappings of files in a directory."""
    sizes, is_ours = {"Rss:": 0, "Pss:": 0}, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            is_ours = directory in line
        elif is_ours and words[0] in sizes:
            sizes[words[0]] += int(words[1]) * KIB
    return sizes["Rss:"], sizes["Pss:"]
