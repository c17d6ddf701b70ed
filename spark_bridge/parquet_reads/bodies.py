"""Rows of side files made whole in a task: what only records say, taken from their segments on the task's host."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from spark_bridge.columnar.reader import records_in_batches
from spark_bridge.options.rows import RowOptions
from spark_bridge.records.bodies import with_bodies
from spark_bridge.records.columns import Column
from spark_bridge.records.reader import open_window
from spark_bridge.replica.replica import explained
from spark_bridge.split.leases import keep
from spark_bridge.split.splits import LogExtent
from store.errors import SegmentRemoved, SegmentSizeMismatch

PLACE, LENGTH = "_recordOffset", "_recordSize"  # columns that say where a row's record lies, and how long it is
logger = logging.getLogger("slipstream.spark")


def fetch(
    batches: Iterable[pa.RecordBatch], log: LogExtent, columns: Sequence[Column], schema: pa.Schema, rows: RowOptions
) -> Iterator[pa.RecordBatch]:
    """The batches with those columns that they lack. Raises SegmentRemoved, SegmentSizeMismatch, CorruptRecord."""
    for batch in batches:
        if log.lease is not None:
            keep(log.lease)
        offsets = batch.column(PLACE).to_numpy()
        bases = offsets - offsets % log.segment_bytes
        borders = [0, *(np.flatnonzero(np.diff(bases)) + 1).tolist(), len(bases)]
        for first, behind in zip(borders, borders[1:], strict=False):
            if first < behind:
                yield from _of_segment(batch.slice(first, behind - first), log, columns, schema, rows)


def _of_segment(
    batch: pa.RecordBatch, log: LogExtent, columns: Sequence[Column], schema: pa.Schema, rows: RowOptions
) -> Iterator[pa.RecordBatch]:
    offsets = batch.column(PLACE).to_numpy()
    try:
        window = open_window(log, int(offsets[0] - offsets[0] % log.segment_bytes))
    except (SegmentRemoved, SegmentSizeMismatch) as error:
        if rows.fail_on_data_loss:
            raise explained(error, log) from None
        logger.warning("failOnDataLoss=false, left out: %s", error)
        return
    reads_body = any(column.reads_body for column in columns)
    positions, lengths = offsets - window.base_offset, batch.column(LENGTH).to_numpy()
    for done, part in records_in_batches(window, positions, lengths):
        for records in with_bodies(part, rows, reads_body):
            known = batch.slice(done, len(records))
            done += len(records)
            arrays = [
                known.column(field.name) if field.name in known.schema.names else column.build(records)
                for column, field in zip(columns, schema, strict=True)
            ]
            casted = [a if a.type == f.type else a.cast(f.type) for a, f in zip(arrays, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(casted, schema=schema)
