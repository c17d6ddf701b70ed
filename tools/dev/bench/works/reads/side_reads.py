"""Reads by side files of sealed segments: Spark against native Parquet of the same messages, scans against memory.

Spark answers the same questions of a store with side files, of the same store without, and of a Parquet copy that it
wrote itself, in turn, warm; answers are compared. Fixed columns are all that a side file says; one row of a hundred is
spread over the whole log, so that no row group can be left out. Scans are measured as the work `scan` does, in bytes of
the log that they answer for, a side file's own bytes being few; what building the files takes is a figure, too.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents use

import spark_bridge
from spark_bridge import java_home
from spark_bridge.columnar import rounds
from store.names import COMMIT_LOG
from store.upkeep.side_files import folder_of
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results
from tools.dev.bench.bed.log_store import LogWriter
from tools.dev.bench.works.reads.scan import BODIES as BODIES_BYTES
from tools.dev.bench.works.reads.scan import FIXED_WAYS, SEGMENTS, compare
from tools.dev.bench.works.reads.spark import (
    BODY_BYTES,
    COLUMNS,
    CONF,
    FIVE,
    MIB,
    SEGMENT_BYTES,
    SUM,
    TOPIC,
    TOPIC_BODIES,
    TOPIC_LENGTHS,
    Side,
    ask_in_turn,
    discard,
    lengths_by_queue,
    total,
)

SIDE, PLAIN, PARQUET = "side files", "in place", "parquet"
FIXED = COLUMNS[:4]
ONE_IN_A_HUNDRED = "queueOffset % 100 = 7"
FOUR = "four-fixed-columns"
FEW = "bodies-of-1%"
GOALS = {SUM: 0.75, FOUR: 0.75, TOPIC_LENGTHS: 0.75, TOPIC_BODIES: 1.3, FEW: 2.0, FIVE: 0.8}


def measure(of: Asked, to: Results) -> None:
    """Measure both halves, Spark's on a store of `mib` MiB."""
    for body_bytes in BODIES_BYTES:
        root = of.scratch / f"side-scan-{body_bytes}"
        records = LogWriter(root, SEGMENT_BYTES, (body_bytes, body_bytes)).write(SEGMENTS)
        _build(root, f"{body_bytes} B bodies", to)
        work = f"side-reads scan, {body_bytes} B bodies"
        compare(root, work, FIXED_WAYS, (records, body_bytes), of.repeat, to)
        shutil.rmtree(root)
    _measure_spark(of, to)


def _measure_spark(of: Asked, to: Results) -> None:
    root, copy = of.scratch / "side-store", str(of.scratch / "side-parquet")
    records = LogWriter(root, SEGMENT_BYTES, BODY_BYTES).write(max(1, of.mib * MIB // SEGMENT_BYTES))
    _build(root, f"spark, {BODY_BYTES[0]} to {BODY_BYTES[1]} B bodies", to)
    java_home.ensure()
    spark = spark_bridge.session("side reads", **CONF)
    try:
        spark_bridge.read(spark, root, columns=COLUMNS).write.mode("overwrite").parquet(copy)
        by_side_files, parquet = _ours(spark, root, SIDE, columnarSidecar=True), _of_parquet(spark, copy)
        sides = [by_side_files, _ours(spark, root, PLAIN), parquet]
        ask_in_turn(sides, of.repeat, of.console)
    finally:
        spark.stop()
        for folder in (root, Path(copy)):
            shutil.rmtree(folder)
    for side in sides:
        side.report("side-reads", records, to)
    for work, goal in GOALS.items():
        ours, theirs = 1 / by_side_files.median(work), 1 / parquet.median(work)
        to.at_least(f"side-reads {work}", ours, theirs, PARQUET, goal)


def _ours(spark: SparkSession, root: Path, name: str, **options: Any) -> Side:
    def read(*columns: str, **asked: Any) -> DataFrame:
        return spark_bridge.read(spark, root, columns=columns, **asked, **options)

    def by_queue(column: str, length: Any, **asked: Any) -> Any:
        return lengths_by_queue(read("queueId", column, **asked), "queueId", length)

    return Side(
        name,
        {
            SUM: lambda: total(read("queueOffset"), "queueOffset"),
            FOUR: lambda: discard(read(*FIXED)),
            TOPIC_LENGTHS: lambda: by_queue("bodyLength", F.col("bodyLength"), topics=[TOPIC]),
            TOPIC_BODIES: lambda: by_queue("body", F.length("body"), topics=[TOPIC]),
            FEW: lambda: by_queue("body", F.length("body"), where=ONE_IN_A_HUNDRED),
            FIVE: lambda: discard(read(*COLUMNS)),
        },
    )


def _of_parquet(spark: SparkSession, path: str) -> Side:
    def by_queue(condition: Any) -> Any:
        return lengths_by_queue(spark.read.parquet(path).filter(condition), "queueId", F.length("body"))

    of_topic = F.col("topic") == TOPIC
    return Side(
        PARQUET,
        {
            SUM: lambda: total(spark.read.parquet(path), "queueOffset"),
            FOUR: lambda: discard(spark.read.parquet(path).select(*FIXED)),
            TOPIC_LENGTHS: lambda: by_queue(of_topic),
            TOPIC_BODIES: lambda: by_queue(of_topic),
            FEW: lambda: by_queue(ONE_IN_A_HUNDRED),
            FIVE: lambda: discard(spark.read.parquet(path)),
        },
    )


def _build(root: Path, what: str, to: Results) -> None:
    """Build them all: how fast, and how large they are."""
    began = time.perf_counter()
    rounds.build_all(root)
    seconds = time.perf_counter() - began
    log_bytes = sum(path.stat().st_size for path in (root / COMMIT_LOG).iterdir())
    side_bytes = sum(path.stat().st_size for path in folder_of(root).iterdir())
    note = f"{100 * side_bytes / log_bytes:.2f} % of the log's bytes"
    to.figure(f"side files built, {what}", "slipstream", log_bytes / seconds / 1e6, "MB/s", note=note)
