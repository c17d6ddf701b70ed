"""What rows of side files have to meet, as Spark says it: the same as `columnar.conditions` asks in a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents use

from spark_bridge.columnar.conditions import FIELD_OF
from spark_bridge.columnar.names import POSITION
from spark_bridge.options.ranges import MICROSECONDS, NUMBER_MAX, TIMES, Range
from spark_bridge.parquet_reads.parts import SideRead
from store.message.record import NOT_FOR_QUEUES


def condition_of(read: SideRead) -> Column | None:
    """Return the condition on a side file's columns; None where all rows count."""
    parts = list(_parts(read))
    return reduce(lambda one, other: one & other, parts) if parts else None


def _parts(read: SideRead) -> Iterator[Column]:
    selection = read.selection
    if read.asks_pending:
        yield F.col("sysFlag").bitwiseAND(F.lit(int(NOT_FOR_QUEUES))) == 0
    if read.ranges:
        yield _any(_in_range(F.col(POSITION), Range(*extent)) for extent in read.ranges)
    if read.topics is not None:
        yield F.col("topic").isin(sorted(read.topics))
    if selection.queue_ids is not None:
        yield F.col("queueId").isin(sorted(selection.queue_ids))
    if selection.queues is not None:
        yield _any(_is_queue(topic, queue_id) for topic, queue_id in sorted(selection.queues))
    for name, field in FIELD_OF.items():
        part: Range = getattr(selection.ranges, field)
        if part != Range():
            yield _in_range(F.col(name), part, field in TIMES)
    for topic, queue_id, first, end in selection.bounds:
        yield ~_is_queue(topic, queue_id) | _in_range(F.col("queueOffset"), Range(first, end))
    for bound in selection.stored:
        inside = _in_range(F.col("storeTimestamp"), Range(bound.from_ms, bound.until_ms), in_ms=True)
        is_of_all = bound.topic is None and bound.queue_id is None
        yield inside if is_of_all else inside | ~_is_queue(bound.topic, bound.queue_id)
    if selection.tags is not None:
        yield F.col("tags").isin(sorted(selection.tags))


def _in_range(value: Column, part: Range, in_ms: bool = False) -> Column:
    """Return a condition with constants on the right, so that Spark leaves out row groups by their statistics."""
    limits = []
    if part.first is not None:
        limits.append(value >= _constant(part.first, in_ms))
    if part.end is not None:
        limits.append(value < _constant(part.end, in_ms))
    return reduce(lambda one, other: one & other, limits, F.lit(True))


def _constant(limit: int, in_ms: bool) -> Column:
    if not in_ms:
        return F.lit(limit)
    return F.timestamp_micros(F.lit(max(-NUMBER_MAX, min(limit * MICROSECONDS, NUMBER_MAX))))


def _is_queue(topic: str | None, queue_id: int | None) -> Column:
    """Return the condition for a topic and queue; None admits any."""
    of_topic = F.lit(True) if topic is None else F.col("topic") == topic
    return of_topic if queue_id is None else of_topic & (F.col("queueId") == queue_id)


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(lambda one, other: one | other, conditions, F.lit(False))
