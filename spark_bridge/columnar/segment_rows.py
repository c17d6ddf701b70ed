"""The records of one sealed segment as rows of its side file, and what the manifest says of them.

The same arrays as the source's columns, so a side file has the same values. What columns cannot say (the messages of an
inner batch, a place that is damaged) is no row: the segment is refused as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from spark_bridge.columnar.side_file import (
    COLUMN_NAMES,
    SAMPLE_BYTES_MAX,
    SAMPLES_MAX,
    TOPIC_CHARACTERS_MAX,
    TOPICS_MAX,
    Sample,
)
from spark_bridge.records.walk import walked
from store.columns.columns import COLUMNS, Column, arrow_schema
from store.columns.records import Records
from store.columns.window import LogWindow, Positions
from store.message.record import NOT_FOR_QUEUES, SysFlag

SIZE = Column("size", pa.int32(), lambda records: pa.array(records.int32_at(0)))
_BY_NAME = {column.name: column for column in (*COLUMNS, SIZE)}
SIDE_COLUMNS = tuple(_BY_NAME[name] for name in COLUMN_NAMES)
SCHEMA = arrow_schema(SIDE_COLUMNS)
# Texts that repeat are dictionaries from the beginning: Parquet takes them as they are.
ENCODED = [column.encoded for column in SIDE_COLUMNS]
ENCODED_SCHEMA = arrow_schema(ENCODED)
STEP_ROWS = 1 << 14
_INNER = int(SysFlag.INNER_BATCH)


class Unfit(Exception):
    """Raised for a segment whose records cannot be rows; the text says why."""


class SegmentRows:
    """All records of a segment, some thousands at a time; what is counted is known once `batches` has ended."""

    def __init__(self, window: LogWindow) -> None:
        self._window = window
        self._starts: list[Positions] = []
        self._topics: set[str] | None = set()
        self.rows = self.not_for_queues = self.done_bytes = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, of ENCODED_SCHEMA, in the log's order. Raises Unfit, CorruptRecord."""
        for records in walked(self._window, 0, 0, self._window.length, at_a_time=STEP_ROWS):
            yield self._batch(records)
        if not self.rows:
            raise Unfit("no records")

    def _batch(self, records: Records) -> pa.RecordBatch:
        assert records.properties_span is not None  # checks the lengths of all parts
        flags = records.sys_flag
        if (flags & _INNER).any():
            at = int(self._window.offsets(records.starts[np.flatnonzero(flags & _INNER)[:1]])[0])
            raise Unfit(f"the record at offset {at} is an inner batch")
        arrays = [column.build(records) for column in ENCODED]
        batch = pa.RecordBatch.from_arrays(arrays, schema=ENCODED_SCHEMA)
        self._count(records, batch)
        return batch

    def _count(self, records: Records, batch: pa.RecordBatch) -> None:
        starts = records.starts.copy()  # alone: the walk's other columns go
        self._starts.append(starts)
        self.rows += len(starts)
        self.not_for_queues += int(np.count_nonzero(records.sys_flag & NOT_FOR_QUEUES))
        self.done_bytes = int(starts[-1]) + int(records.sizes[-1])
        if self._topics is not None:
            self._topics.update(batch.column(0).dictionary.to_pylist())
            if len(self._topics) > TOPICS_MAX or any(len(topic) > TOPIC_CHARACTERS_MAX for topic in self._topics):
                self._topics = None

    @property
    def topics(self) -> tuple[str, ...] | None:
        """The distinct topics; None for too many."""
        return None if self._topics is None else tuple(sorted(self._topics))

    @property
    def last_offset(self) -> int:
        """Return the offset of the last record."""
        return int(self._window.offsets(self._starts[-1][-1:])[0])

    @property
    def first_offset(self) -> int:
        """Return the offset of the first record."""
        return int(self._window.offsets(self._starts[0][:1])[0])

    @property
    def end_offset(self) -> int:
        """Return the offset behind the last record."""
        return self._window.base_offset + self.done_bytes

    def samples(self) -> tuple[Sample, ...]:
        """The heads of the first record, the last one, and some at equal distances between."""
        starts = np.concatenate(self._starts)
        chosen = starts[np.unique(np.linspace(0, len(starts) - 1, SAMPLES_MAX).astype(np.int64))]
        records = Records(self._window, chosen)
        heads = zip(chosen.tolist(), (records.body_at - chosen).tolist(), strict=True)
        return tuple(
            Sample(
                self._window.base_offset + at,
                min(length, SAMPLE_BYTES_MAX),
                hashlib.sha256(self._window.bytes.data[at : at + min(length, SAMPLE_BYTES_MAX)]).hexdigest(),
            )
            for at, length in heads
        )
