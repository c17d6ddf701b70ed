"""Streaming queries of the tests: every batch's rows, by batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = "topic string, queueId int, queueOffset bigint, body binary"
TIMEOUT_S = 400

Rows = list[tuple[str, int, int, bytes]]
Batches = dict[int, Rows]


def start(
    spark: SparkSession,
    store: Path | str,
    checkpoint: Path,
    batches: Batches,
    *,
    continuous: bool = False,
    **options: str,
) -> StreamingQuery:
    """A query that keeps each batch's rows; of a batch that is run again the last run counts."""

    def keep(frame: DataFrame, batch: int) -> None:
        batches[batch] = [(row.topic, row.queueId, row.queueOffset, bytes(row.body)) for row in frame.collect()]

    reader = spark.readStream.format("rocketmq").schema(COLUMNS).option("path", str(store)).options(**options)
    writer = reader.load().writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    trigger = {"processingTime": "0 seconds"} if continuous else {"availableNow": True}
    return writer.trigger(**trigger).start()  # type: ignore[arg-type]


def drain(spark: SparkSession, store: Path | str, checkpoint: Path, batches: Batches, **options: str) -> StreamingQuery:
    """Read what there is now."""
    query = start(spark, store, checkpoint, batches, **options)
    if not query.awaitTermination(TIMEOUT_S):
        query.stop()
        raise TimeoutError(f"the query did not end in {TIMEOUT_S} s: {query.lastProgress}")
    return query


def rows_of(batches: Batches) -> Rows:
    """All rows, sorted. Spark's thread may add a batch meanwhile."""
    return sorted(row for rows in list(batches.values()) for row in rows)


def await_rows(query: StreamingQuery, met: Callable[[], bool]) -> None:
    """Until that is so, or the query fails, or the deadline passes."""
    for _ in range(TIMEOUT_S * 10):
        if met():
            return
        if query.awaitTermination(0.1):
            break
    raise AssertionError(f"not met: {query.exception()}, {query.lastProgress}")
