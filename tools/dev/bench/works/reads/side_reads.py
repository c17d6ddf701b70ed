"""Reads by side files of sealed segments: Spark against native Parquet of the same messages, scans against memory.

    python -m tools.dev.bench side-reads

Spark answers the same questions of a store with side files, of the same store without, and of a Parquet copy that it
wrote itself, in turn, warm; answers are compared. Fixed columns are all that a side file says; one row of a hundred is
spread over the whole log, so that no row group can be left out. Scans are measured as the work `scan` does, in bytes of
the log that they answer for, a side file's own bytes being few; what building the files takes is a figure, too.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents use
from rich.console import Console

import spark_bridge
from spark_bridge import java_home
from spark_bridge.columnar import rounds
from spark_bridge.scanning import scan
from store.names import COMMIT_LOG
from store.upkeep.side_files import folder_of
from tools.dev.bench.bed.figures import Figure, Ratio
from tools.dev.bench.bed.log_store import LogWriter, read_through
from tools.dev.bench.works.reads.scan import FIXED_COLUMNS
from tools.dev.bench.works.reads.spark import BODY_BYTES, COLUMNS, MIB, SEGMENT_BYTES, TOPIC, Side
from tools.dev.bench.works.reads.spark import measure as ask_in_turn

SIDE, PLAIN, PARQUET = "side files", "in place", "parquet"
FIXED = COLUMNS[:4]
ONE_IN_A_HUNDRED = "queueOffset % 100 = 7"
SUM, FOUR, LENGTHS = "sum-of-offsets", "four-fixed-columns", "topic-sum-of-body-lengths"
BODIES, FEW, FIVE = "topic-sum-of-length(body)", "bodies-of-1%", "five-columns-with-body"
GOALS = {SUM: 0.75, FOUR: 0.75, LENGTHS: 0.75, BODIES: 1.3, FEW: 2.0, FIVE: 0.8}
SCAN_BODIES, SCAN_SEGMENTS, SCAN_GOAL = (128, 1024), 4, 0.5


def run(mib: int, repeat: int, console: Console, scratch: Path) -> tuple[list[Figure], list[Ratio]]:
    """Measure both halves, Spark's on a store of `mib` MiB."""
    figures, ratios = _of_scans(scratch, repeat)
    more_figures, more_ratios = _of_spark(mib, repeat, console, scratch)
    return figures + more_figures, ratios + more_ratios


def _of_spark(mib: int, repeat: int, console: Console, scratch: Path) -> tuple[list[Figure], list[Ratio]]:
    root, copy = scratch / "side-store", str(scratch / "side-parquet")
    records = LogWriter(root, SEGMENT_BYTES, BODY_BYTES).write(max(1, mib * MIB // SEGMENT_BYTES))
    figures = [_built(root, f"spark, {BODY_BYTES[0]} to {BODY_BYTES[1]} B bodies")]
    java_home.ensure()
    spark = spark_bridge.session("side reads", **{"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4"})
    try:
        spark_bridge.read(spark, root, columns=COLUMNS).write.mode("overwrite").parquet(copy)
        sides = [_ours(spark, root, SIDE, columnarSidecar=True), _ours(spark, root, PLAIN), _of_parquet(spark, copy)]
        ask_in_turn(sides, repeat, console)
    finally:
        spark.stop()
        for folder in (root, Path(copy)):
            shutil.rmtree(folder)
    middle = {side.name: {work: statistics.median(of) for work, of in side.seconds.items()} for side in sides}
    for side in sides:
        for work, seconds in side.seconds.items():
            note = f"{min(seconds):.2f} / {middle[side.name][work]:.2f} / {max(seconds):.2f} s"
            rate = records / middle[side.name][work] / 1e6
            figures.append(Figure(f"side-reads {work}", side.name, rate, "M msg/s", note=note))
    rates = {name: {work: 1 / seconds for work, seconds in works.items()} for name, works in middle.items()}
    return figures, [
        Ratio(f"side-reads {work}", rates[SIDE][work], rates[PARQUET][work], PARQUET, goal)
        for work, goal in GOALS.items()
    ]


def _ours(spark: SparkSession, root: Path, name: str, **options: Any) -> Side:
    def read(*columns: str, **asked: Any) -> DataFrame:
        return spark_bridge.read(spark, root, columns=columns, **asked, **options)

    def by_queue(column: str, length: Any, **asked: Any) -> Any:
        return _by_queue(read("queueId", column, **asked), length)

    return Side(
        name,
        {
            SUM: lambda: _sum(read("queueOffset")),
            FOUR: lambda: _discard(read(*FIXED)),
            LENGTHS: lambda: by_queue("bodyLength", F.col("bodyLength"), topics=[TOPIC]),
            BODIES: lambda: by_queue("body", F.length("body"), topics=[TOPIC]),
            FEW: lambda: by_queue("body", F.length("body"), where=ONE_IN_A_HUNDRED),
            FIVE: lambda: _discard(read(*COLUMNS)),
        },
    )


def _of_parquet(spark: SparkSession, path: str) -> Side:
    def by_queue(condition: Any) -> Any:
        return _by_queue(spark.read.parquet(path).filter(condition), F.length("body"))

    of_topic = F.col("topic") == TOPIC
    return Side(
        PARQUET,
        {
            SUM: lambda: _sum(spark.read.parquet(path)),
            FOUR: lambda: _discard(spark.read.parquet(path).select(*FIXED)),
            LENGTHS: lambda: by_queue(of_topic),
            BODIES: lambda: by_queue(of_topic),
            FEW: lambda: by_queue(ONE_IN_A_HUNDRED),
            FIVE: lambda: _discard(spark.read.parquet(path)),
        },
    )


def _by_queue(frame: DataFrame, length: Any) -> list[tuple[int, int]]:
    return sorted((row[0], row[1]) for row in frame.groupBy("queueId").agg(F.sum(length)).collect())


def _sum(frame: DataFrame) -> int:
    return int(frame.agg(F.sum("queueOffset")).collect()[0][0])


def _discard(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _built(root: Path, what: str) -> Figure:
    """Build them all: how fast, and how large they are."""
    began = time.perf_counter()
    rounds.build_all(root)
    seconds = time.perf_counter() - began
    log_bytes = sum(path.stat().st_size for path in (root / COMMIT_LOG).iterdir())
    side_bytes = sum(path.stat().st_size for path in folder_of(root).iterdir())
    note = f"{100 * side_bytes / log_bytes:.2f} % of the log's bytes"
    return Figure(f"side files built, {what}", "slipstream", log_bytes / seconds / 1e6, "MB/s", note=note)


def _of_scans(scratch: Path, repeat: int) -> tuple[list[Figure], list[Ratio]]:
    figures, ratios = [], []
    for body_bytes in SCAN_BODIES:
        root = scratch / f"side-scan-{body_bytes}"
        records = LogWriter(root, SEGMENT_BYTES, (body_bytes, body_bytes)).write(SCAN_SEGMENTS)
        figures.append(_built(root, f"{body_bytes} B bodies"))
        log_bytes, total = SCAN_SEGMENTS * SEGMENT_BYTES, records * body_bytes
        ways: dict[str, Callable[[Path], int]] = {"polars": _polars, "DuckDB": _duckdb}
        taken: dict[str, list[float]] = {"mmap read": [], **{way: [] for way in ways}}
        read_through(root)  # the page cache
        for ask in ways.values():  # and what a process does once: compares the side files' sums
            ask(root)
        for _ in range(repeat):
            taken["mmap read"].append(log_bytes / read_through(root))
            for way, ask in ways.items():
                began = time.perf_counter()
                if ask(root) != total:
                    raise SystemExit(f"{way} found other than {total} bytes of bodies")
                taken[way].append(log_bytes / (time.perf_counter() - began))
        for way, rates in taken.items():
            work = f"side-reads scan, {body_bytes} B bodies: {way}, fixed columns"
            figures.append(Figure(work, "slipstream", statistics.median(rates) / 1e6, "MB/s of log"))
            if way in ways:
                limit = statistics.median(taken["mmap read"])
                ratios.append(Ratio(work, statistics.median(rates), limit, "mmap read", SCAN_GOAL))
        shutil.rmtree(root)
    return figures, ratios


def _polars(root: Path) -> int:
    import polars as pl

    frame: Any = pl.from_arrow(_by_side_files(root).read_all())
    return int(frame["bodyLength"].sum())


def _duckdb(root: Path) -> int:
    import duckdb

    ask: Any = duckdb.sql
    log = _by_side_files(root)
    ((total,),) = ask("SELECT sum(bodyLength) FROM log").fetchall()  # a local variable is a table to DuckDB
    del log
    return int(total)


def _by_side_files(root: Path) -> Any:
    return scan(root, columns=FIXED_COLUMNS)
