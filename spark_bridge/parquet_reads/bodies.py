"""Rows of side files made whole in a task: what only records say, taken from their segments on the task's host."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import pyarrow as pa

from spark_bridge.columnar.reader import records_in_batches
from spark_bridge.records.bodies import with_bodies
from spark_bridge.records.columns import Asked
from spark_bridge.records.reader import open_window, segments_of
from spark_bridge.replica.replica import explained
from spark_bridge.split.leases import keep
from spark_bridge.split.splits import LogExtent
from store.errors import SegmentRemoved, SegmentSizeMismatch

PLACE, LENGTH = "_recordOffset", "_recordSize"  # columns that say where a row's record lies, and how long it is
logger = logging.getLogger("slipstream.spark")


def fetch(batches: Iterable[pa.RecordBatch], log: LogExtent, asked: Asked) -> Iterator[pa.RecordBatch]:
    """The batches with the columns they lack. Raises SegmentRemoved, SegmentSizeMismatch, CorruptRecord."""
    for batch in batches:
        if log.lease is not None:
            keep(log.lease)
        for base, first, behind in segments_of(batch.column(PLACE).to_numpy(), log.segment_bytes):
            yield from _of_segment(batch.slice(first, behind - first), log, base, asked)


def _of_segment(batch: pa.RecordBatch, log: LogExtent, base: int, asked: Asked) -> Iterator[pa.RecordBatch]:
    try:
        window = open_window(log, base)
    except (SegmentRemoved, SegmentSizeMismatch) as error:
        if asked.rows.fail_on_data_loss:
            raise explained(error, log) from None
        logger.warning("failOnDataLoss=false, left out: %s", error)
        return
    positions, lengths = batch.column(PLACE).to_numpy() - base, batch.column(LENGTH).to_numpy()
    for done, part in records_in_batches(window, positions, lengths):
        for records in with_bodies(part, asked.rows, asked.reads_bodies):
            known = batch.slice(done, len(records))
            done += len(records)
            yield asked.batch(
                known.column(field.name) if field.name in known.schema.names else column.build(records)
                for column, field in zip(asked.columns, asked.schema, strict=True)
            )
