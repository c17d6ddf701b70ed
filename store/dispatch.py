"""Builds consume queues from the log: whatever range it is given, as often as it is given.

Implements: the dispatchers of ReputMessageService, ConsumeQueue.putMessagePositionInfo (spec: store-formats, 10, 20)
The records' own queue offsets say where an entry belongs, never a counter of ours: so a slave builds the queues of its
master, and a range dispatched twice changes nothing. A queue is looked up when the first record for it comes; what it
then holds of records at or above that point (a killed dispatcher's work) is written again, the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from store import dispatch_kernel as kernel
from store.consume_queue import CQ_DTYPE, ENTRY_BYTES, ConsumeQueue, Entries
from store.errors import CorruptRecord, QueueGap
from store.index_service import IndexService
from store.properties import java_hash, java_text
from store.segment import Segment
from store.segment_files import SegmentFiles

BATCH_ROWS = 32768
FINDINGS_MAX = 100
STOPS = {
    kernel.NO_RECORD: "no record begins here, though the log goes on",
    kernel.DAMAGED: "its size, lengths or physical offset are wrong",
}


def _table_words(rows: int) -> int:
    """A hash table for so many rows: a power of two, at most half full."""
    return 1 << (2 * rows - 1).bit_length()


@dataclass(slots=True)
class _Queue:
    files: ConsumeQueue
    end: int  # the next queue offset
    max_physical_offset: int  # end of the last record in it


class Dispatcher:
    """Queues by name, and where each ends. One process at a time."""

    def __init__(
        self, segment_files: SegmentFiles, consumequeue: Path, file_bytes: int, *, refuse_gaps: bool = False,
        index: IndexService | None = None,
        on_rows: Callable[[kernel.Bytes, int, kernel.Words, int], None] | None = None,
    ) -> None:  # fmt: skip
        """`refuse_gaps`: raise QueueGap, nothing written, when a queue lacks entries before a record's (recovery asks,
        because the log may still have them). Else entries go to the queue's end, as RocketMQ does it.
        `on_rows`: called with (segment's bytes, its base offset, rows, how many) once their entries are written."""
        self._on_rows = on_rows
        self._segments, self._root, self._file_bytes = segment_files, consumequeue, file_bytes
        self._refuse_gaps, self._index = refuse_gaps, index
        self._queues: dict[tuple[bytes, int], _Queue | None] = {}
        self._segment: Segment | None = None
        self._rows = np.zeros((BATCH_ROWS, kernel.ROW_WORDS), np.int64)
        self._groups = np.zeros((BATCH_ROWS, kernel.GROUP_WORDS), np.int64)
        self._table = np.zeros(_table_words(BATCH_ROWS), np.int64)
        self._entries = np.zeros(BATCH_ROWS * ENTRY_BYTES, np.uint8)
        self.last_store_timestamp_ms = 0
        self.findings: list[str] = []

    def close(self) -> None:
        """Unmap the segment."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def dispatch(self, from_offset: int, to_offset: int) -> int:
        """Put the records of [from_offset, to_offset) into their queues; both ends are record boundaries.

        Returns how far it came: less than `to_offset` only where a slave's log ends in part of a record.
        Raises CorruptRecord, QueueGap.
        """
        while from_offset < to_offset:
            reached = self.dispatch_batch(from_offset, to_offset)
            if reached == from_offset:
                break
            from_offset = reached
        return from_offset

    def dispatch_batch(self, from_offset: int, to_offset: int) -> int:
        """One batch of `dispatch`: at most BATCH_ROWS records of one segment."""
        segment = self._open(from_offset)
        base = segment.base_offset
        limit = min(to_offset, segment.end_offset) - base
        position, count, stop = kernel.scan(segment.array, from_offset - base, limit, base, self._rows)
        if count:
            self._append_rows(segment, count, from_offset)
            if self._index is not None:
                self._index.put(segment, self._rows, count)
            if self._on_rows is not None:
                self._on_rows(segment.array, base, self._rows, count)
            self.last_store_timestamp_ms = int(self._rows[count - 1, kernel.STORE_TIMESTAMP])
        if stop == kernel.BLANK and limit == segment.size_bytes:
            return segment.end_offset
        if stop in STOPS and position == from_offset - base:
            raise CorruptRecord(str(segment.path), base + position, STOPS[stop])
        return base + int(position)

    def _open(self, offset: int) -> Segment:
        base = self._segments.base_of(offset)
        if self._segment is None or self._segment.base_offset != base:
            self.close()
            self._segment = self._segments.open(base)
        return self._segment

    def _append_rows(self, segment: Segment, count: int, from_offset: int) -> None:
        rows = self._rows[:count]
        for index in np.flatnonzero(rows[:, kernel.TAGS_BYTES]):  # tags that are not ASCII: rare
            self._hash_tags(segment, rows[index])
        table = self._table[: _table_words(count)]
        table.fill(0)
        known = kernel.group_rows(segment.array, rows, count, segment.base_offset, table, self._groups, self._entries)
        entries = self._entries.view(CQ_DTYPE)
        work = []
        for number in range(known):
            group = self._groups[number]
            queue = self._queue_of(segment, rows[group[kernel.FIRST_ROW]], from_offset)
            if queue is not None:
                start = int(group[kernel.STARTS_AT])
                work.append((queue, number, entries[start : start + int(group[kernel.ENTRIES])]))
        if self._refuse_gaps:
            for queue, number, _ in work:
                self._check_gap(queue, int(self._groups[number, kernel.FIRST_QUEUE_OFFSET]))
        for queue, number, of_queue in work:
            self._append_group(queue, number, of_queue, rows)

    @staticmethod
    def _hash_tags(segment: Segment, row: npt.NDArray[np.int64]) -> None:
        at, count = int(row[kernel.TAGS_AT]), int(row[kernel.TAGS_BYTES])
        row[kernel.TAGS_CODE] = java_hash(java_text(segment.array[at : at + count].tobytes()))

    def _queue_of(self, segment: Segment, row: npt.NDArray[np.int64], from_offset: int) -> _Queue | None:
        """The row's queue; None when its name cannot be a directory's (nothing we or RocketMQ accept from a client)."""
        at, count = int(row[kernel.TOPIC_AT]), int(row[kernel.TOPIC_BYTES])
        topic, queue_id = segment.array[at : at + count].tobytes(), int(row[kernel.QUEUE_ID])
        key = topic, queue_id
        if key not in self._queues:
            name = java_text(topic)
            if not name or "/" in name or "\0" in name or name in (".", "..") or queue_id < 0:
                self._queues[key] = None
                offset = segment.base_offset + int(row[kernel.POSITION])
                self._report(f"records of topic {name!r}, queue {queue_id} (first at {offset}) have no queue: bad name")
            else:
                files = ConsumeQueue(self._root / name / str(queue_id), self._file_bytes)
                end = files.end_below(from_offset)
                self._queues[key] = _Queue(files, end, from_offset)
        return self._queues[key]

    def _check_gap(self, queue: _Queue, queue_offset: int) -> None:
        if queue_offset > queue.end:
            raise QueueGap(str(queue.files.directory), queue.end, queue_offset)

    def _append_group(self, queue: _Queue, number: int, entries: Entries, rows: npt.NDArray[np.int64]) -> None:
        group = self._groups[number]
        first = int(group[kernel.FIRST_QUEUE_OFFSET])
        physical = int(entries[0]["physical_offset"])
        if group[kernel.DENSE] and first == queue.end and physical >= queue.max_physical_offset:
            queue.files.append(queue.end, entries.tobytes())
            queue.end += len(entries)
            queue.max_physical_offset = int(entries[-1]["physical_offset"]) + int(entries[-1]["size"])
            return
        queue_offsets = rows[rows[:, kernel.GROUP] == number, kernel.QUEUE_OFFSET]
        for entry, queue_offset in zip(entries, queue_offsets, strict=True):
            self._append_one(queue, entry, int(queue_offset))

    def _append_one(self, queue: _Queue, entry: np.void, queue_offset: int) -> None:
        """The general rules, for the rare queue that is not simply continued."""
        end = int(entry["physical_offset"]) + int(entry["size"])
        if end <= queue.max_physical_offset or queue_offset < queue.end:
            return  # built before
        if queue.end == 0 and queue_offset > 0:
            queue.files.prefill(queue_offset)
            queue.end = queue_offset
        if queue_offset != queue.end:
            self._report(f"{queue.files.directory}: message {queue_offset} follows message {queue.end - 1}")
        queue.files.append(queue.end, entry.tobytes())
        queue.end += 1
        queue.max_physical_offset = end

    def _report(self, finding: str) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)
