"""What one of everything costs on this machine: a task, a byte read in place, a segment mapped, a byte of the disk.

`docs/scale.md` multiplies these. A task is one of Spark's that reads four messages; bytes are those of the log, read by
one process whose pages are in the cache; the disk's are read after the cache forgot them.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql.pandas.types import to_arrow_schema

import spark_bridge
from ipc.descriptors import closing_fd
from spark_bridge import java_home
from spark_bridge.options.read import parse_options
from spark_bridge.plan.planner import plan_read
from spark_bridge.records import columns
from spark_bridge.records.reader import read_split
from spark_bridge.records.spark_schema import schema_of
from store.files import file_io
from store.files.segment_files import SegmentFiles
from store.names import COMMIT_LOG
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results
from tools.dev.bench.bed.log_store import LogWriter
from tools.dev.bench.bed.machine import rest_disk
from tools.dev.bench.bed.sparse_store import SparseStore

TASKS = 400
CPUS = 2
MIB = 1 << 20
LOG_SEGMENT_BYTES, LOG_SEGMENTS = 256 * MIB, 2
READ_BYTES = 4 * MIB
BODY_BYTES = (100, 300)
FIXED, BODIES = ["queueId", "queueOffset", "storeTimestamp"], ["topic", "queueId", "queueOffset", "body"]
TASK, FIXED_RATE, BODY_RATE = "a task of Spark", "fixed columns in place, a core", "bodies in place, a core"
MAPPED, DISK_RATE = "a segment opened and mapped", "the disk, read in order"


def _seconds(work: Callable[[], object], repeat: int) -> float:
    """The median, once it was done before."""
    work()
    taken = []
    for _ in range(repeat):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def _task_ms(directory: Path, repeat: int) -> float:
    """A task's time on its CPU, with what Spark does for it."""
    store = SparseStore(directory / "tasks", TASKS, TASKS).write()
    spark = spark_bridge.session("slipstream bench", master=f"local[{CPUS}]")
    try:

        def count() -> int:
            return int(spark_bridge.read(spark, store.root, columns=["queueId"]).count())

        assert count() == store.records
        return _seconds(count, repeat) * 1000 * CPUS / TASKS
    finally:
        spark.stop()


def _rate(root: Path, names: list[str], repeat: int) -> float:
    """MB of the log a second, of all splits one after the other."""
    asked = columns.Asked.of(names, schema=to_arrow_schema(schema_of(names), timezone="UTC"))
    splits = plan_read(parse_options({"path": str(root)}))

    def read() -> int:
        return sum(batch.num_rows for split in splits for batch in read_split(split, asked))

    return LOG_SEGMENTS * LOG_SEGMENT_BYTES / _seconds(read, repeat) / 1e6


def _mapped_us(root: Path, repeat: int) -> float:
    """Return the microseconds to open a segment, map it, read a byte and close it."""
    files = SegmentFiles(root / COMMIT_LOG, LOG_SEGMENT_BYTES)
    times = 1000

    def map_it() -> None:
        for _ in range(times):
            with files.open(0) as segment:
                segment.view[0]

    return _seconds(map_it, repeat) / times * 1e6


def _disk_rate(directory: Path, repeat: int) -> float:
    """MB a second of a file that the page cache has forgotten; nobody ever mapped it, or it would not."""
    path = directory / "read-in-order"
    with path.open("wb") as file:
        for _ in range(LOG_SEGMENT_BYTES // READ_BYTES):
            file.write(os.urandom(READ_BYTES))
    rest_disk()

    def read() -> None:
        with closing_fd(file_io.open_file(path, writable=False)) as fd:
            file_io.drop_cached(fd, 0, LOG_SEGMENT_BYTES)
            while os.read(fd, READ_BYTES):
                pass

    return LOG_SEGMENT_BYTES / _seconds(read, repeat) / 1e6


def measure(of: Asked, to: Results) -> None:
    """Measure each cost; medians of the runs."""
    java_home.ensure()
    root = of.scratch / "costs"
    LogWriter(root, LOG_SEGMENT_BYTES, BODY_BYTES).write(LOG_SEGMENTS)
    task = _task_ms(of.scratch, of.repeat)
    to.figure(TASK, "slipstream", task, "ms of a CPU", note=f"{TASKS} tasks on {CPUS} CPUs")
    to.figure(FIXED_RATE, "slipstream", _rate(root, FIXED, of.repeat), "MB/s", note=", ".join(FIXED))
    to.figure(BODY_RATE, "slipstream", _rate(root, BODIES, of.repeat), "MB/s", note=", ".join(BODIES))
    to.figure(MAPPED, "slipstream", _mapped_us(root, of.repeat), "us")
    to.figure(DISK_RATE, "this machine", _disk_rate(of.scratch, of.repeat), "MB/s")
    shutil.rmtree(root)
