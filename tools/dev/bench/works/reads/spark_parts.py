"""Where the time of a Spark query goes: seconds of CPU of each of its processes, and of a session's first steps.

    python -m tools.dev.bench.works.reads.spark_parts [--mib 256] [--repeat 3]

Spark makes one Python process to find the format, one to make the source and one to plan it, and workers to read. Each
is started here as Spark starts it, without Spark, for this source and for one of four lines that returns three numbers.
Seconds of CPU do not depend on what else runs; those of the clock do.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click
import psutil
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ipc.module_names import named
from tools.dev.bench.bed.log_store import LogWriter

MIB = 1 << 20
SEGMENT_BYTES, BODY_BYTES = 256 << 20, (100, 300)
NARROW, WIDE = ["queueId"], ["topic", "queueId", "queueOffset", "storeTimestamp", "body"]
READY, READY_ROWS, PARTS = "ready", 1 << 16, 2
WARM_QUERIES, COUNTED_QUERIES = 12, 9
OURS, TRIVIAL = "slipstream", "trivial"
TRIVIAL_SOURCE = """
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StructType

class Reader(DataSourceReader):
    def partitions(self): return [InputPartition(0)]
    def read(self, partition):
        import pyarrow as pa
        yield pa.RecordBatch.from_pydict({"id": pa.array([1, 2, 3])})

class Trivial(DataSource):
    def schema(self): return StructType().add("id", LongType())
    def reader(self, schema): return Reader()

source = Trivial({})
"""
OUR_SOURCE = f"""
from {named("spark_bridge.source")} import RocketMQSource

source = RocketMQSource({{"path": sys.argv[1]}})
"""
SOURCES = {OURS: OUR_SOURCE, TRIVIAL: TRIVIAL_SOURCE}
BEGUN = "import sys, time\nimport pyspark.daemon\n{imports}began = time.process_time()\n"
ENDED = "\nprint(time.process_time() - began)"
WORKER = "pyspark.sql.worker."
STEPS = {  # the module that Spark runs, and what it asks
    "find the format": (WORKER + "lookup_data_sources", ""),
    "make the source": (WORKER + "create_data_source", "source.schema()"),
    "plan": (WORKER + "plan_data_source_read", "source.reader(source.schema()).partitions()"),
}
READ = """
from pyspark import cloudpickle
reader, parts = cloudpickle.loads(sys.stdin.buffer.read())
rows = sum(batch.num_rows for part in parts for batch in reader.read(part))
"""
PICKLED = """
from pyspark import cloudpickle
reader = source.reader(source.schema())
sys.stdout.buffer.write(cloudpickle.dumps((reader, reader.partitions()[:1])))
"""
IMPORTS_OF_WORKERS = "import pyspark.worker, pyspark.sql.worker.plan_data_source_read\n"


class ReadyReader(DataSourceReader):
    """Two parts of rows that cost nothing to make: what is left is Spark's own."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def partitions(self) -> list[InputPartition]:
        """Return as many parts as the session has cores."""
        return [InputPartition(number) for number in range(PARTS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the same batch again and again."""
        left, numbers = self.rows // PARTS, pa.array(range(READY_ROWS), pa.int32())
        batch = pa.RecordBatch.from_arrays([numbers], names=NARROW)
        while left > 0:
            yield batch.slice(0, left)
            left -= READY_ROWS


class Ready(DataSource):
    """A source whose batches are ready."""

    @classmethod
    def name(cls) -> str:
        """Return the name by which the session reads it."""
        return READY

    def schema(self) -> str:
        """One column, as wide as the narrow one of the log."""
        return "queueId int"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the option `rows`."""
        return ReadyReader(int(self.options["rows"]))


def _ran(script: str, store: Path, given: bytes = b"") -> bytes:
    command = [sys.executable, "-c", script, str(store)]
    return subprocess.run(command, input=given, capture_output=True, check=True).stdout


def cpu_seconds(step: str, subject: str, store: Path) -> float:
    """Return what one process takes behind Spark's own modules."""
    module, asked = STEPS[step]
    script = BEGUN.format(imports=f"import {module}\n") + SOURCES[subject] + asked + ENDED
    return float(_ran(script, store))


def worker_seconds(store: Path) -> float:
    """Return the same of a worker's first task of few rows."""
    pickled = _ran("import sys\n" + OUR_SOURCE + PICKLED, store)
    return float(_ran(BEGUN.format(imports=IMPORTS_OF_WORKERS) + READ + ENDED, store, pickled))


def trivial_worker_seconds(store: Path) -> float:
    """Return that of a worker that reads three numbers."""
    script = BEGUN.format(imports=IMPORTS_OF_WORKERS) + TRIVIAL_SOURCE + "list(source.reader(None).read(None))" + ENDED
    return float(_ran(script, store))


def decode_seconds(store: Path, columns: Sequence[str]) -> tuple[float, int]:
    """Return the seconds of CPU in which one process makes Arrow batches of a store, and its rows."""
    from spark_bridge.scanning import scan

    rows = 0
    began = time.process_time()
    for batch in scan(str(store), columns=columns, columnarSidecar="false"):
        rows += batch.num_rows
    return time.process_time() - began, rows


def middle(repeat: int, measured: Callable[[], float]) -> float:
    """Return the median of some runs."""
    return statistics.median(measured() for _ in range(repeat))


def ask_spark(store: Path) -> None:
    """Print the clock of a session's first steps, and the CPU of the JVM and of Python for later queries."""
    from spark_bridge import read, session

    times = [time.perf_counter()]
    spark = session("slipstream bench")
    times.append(time.perf_counter())
    frame = spark.read.format("rocketmq").option("columns", "queueId").option("path", str(store)).load()
    times.append(time.perf_counter())
    rows = frame.count()
    times.append(time.perf_counter())
    for what, (sooner, later) in zip(("session", "load()", "first count"), itertools.pairwise(times), strict=True):
        click.echo(f"{what}: {later - sooner:.2f} s")
    spark.dataSource.register(Ready)
    ready = spark.read.format(READY).option("rows", str(rows))
    topic = "orders-03"
    one: dict[str, Any] = {
        "startingOffsets": json.dumps({topic: {"0": 0}}),
        "endingOffsets": json.dumps({topic: {"0": 1, "1": 0, "2": 0, "3": 0}}),
    }
    queries: dict[str, Callable[[], object]] = {
        f"count, {', '.join(NARROW)}": lambda: read(spark, store, columns=NARROW).count(),
        f"all rows, {', '.join(WIDE)}": lambda: _discard(read(spark, store, columns=WIDE)),
        "count of as many rows that are ready": lambda: ready.load().count(),
        "one row": lambda: read(spark, store, columns=NARROW, topics=[topic], **one).count(),
    }
    for what, query in queries.items():
        for _ in range(WARM_QUERIES):
            query()
        spent = [_spent(query) for _ in range(COUNTED_QUERIES)]
        java, python = (statistics.median(values) for values in zip(*spent, strict=True))
        click.echo(f"{what} of {rows:,}: JVM {java:.2f} CPU s, Python {python:.2f}")
    spark.stop()


def _discard(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _spent(query: Callable[[], object]) -> tuple[float, float]:
    before = _cpu_of_children()
    query()
    java, python = (now - then for now, then in zip(_cpu_of_children(), before, strict=True))
    return java, python


def _cpu_of_children() -> tuple[float, float]:
    """Return the CPU seconds of the JVM, and of the processes that it started."""
    java = python = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = process.cpu_times()
            if process.name() == "java":
                java += times.user + times.system
            else:
                python += times.user + times.system + times.children_user + times.children_system
    return java, python


@click.command()
@click.option("--mib", default=256, show_default=True, help="Size of the log, in steps of 256.")
@click.option("--repeat", default=3, show_default=True, help="How often each process is started.")
def main(mib: int, repeat: int) -> None:
    """Print where the time of a Spark query goes."""
    with tempfile.TemporaryDirectory(prefix="slipstream-bench-") as scratch:
        store, small = Path(scratch) / "store", Path(scratch) / "small"
        LogWriter(store, SEGMENT_BYTES, BODY_BYTES).write(max(1, mib * MIB // SEGMENT_BYTES))
        LogWriter(small, MIB, BODY_BYTES).write(1)
        for step in STEPS:
            ours, trivial = (middle(repeat, partial(cpu_seconds, step, subject, small)) for subject in SOURCES)
            click.echo(f"{step}: {ours:.3f} CPU s, trivial source {trivial:.3f}")
        ours, trivial = (middle(repeat, partial(work, small)) for work in (worker_seconds, trivial_worker_seconds))
        click.echo(f"a worker's first task: {ours:.3f} CPU s, trivial source {trivial:.3f}")
        for columns in (NARROW, WIDE):
            seconds, rows = min(decode_seconds(store, columns) for _ in range(repeat))
            click.echo(f"decode {', '.join(columns)}: {seconds / rows * 1e6:.3f} CPU s per million rows")
        ask_spark(store)


if __name__ == "__main__":
    main()
