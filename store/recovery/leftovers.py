"""Tells a record that an earlier use of its bytes left behind from one of this log: by its time and its queue offset.

Implements: what CommitLog's recovery takes on trust (spec: store-formats, 9: bytes beyond a truncation are not zeroed)
RocketMQ cuts a log without zeroing what lies behind, and writes on from there. So whole records of before may lie
behind the end, even right at it, with magic, CRC and physical offset in order. Such a record is older than the one
before it, and its queue does not go on with it: its offset is taken already, or others are missing before it. Either
alone happens in a sound log (a clock set back, a queue begun again); both together do not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ipc.arrays import Words
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles
from store.message import rows_kernel as kernel
from store.message.properties import java_text
from store.message.record import TRANSACTION_MASK, SysFlag
from store.message.rows_kernel import Row, Scanned, ScanStop
from store.queues import group_kernel
from store.queues.consume_queue import ENTRY_BYTES
from store.queues.group_kernel import NO_BUDGET, Group, Grouping, Groups
from store.queues.lanes import Lanes

ROWS = 16384
TABLE_WORDS = 2 * ROWS
COUNTED_BY_ONE = (0, int(SysFlag.TRANSACTION_COMMIT))  # plain and committed messages
QueueEnd = Callable[[str, int, int], int]


def no_queues(_topic: str, _queue_id: int, _physical_offset: int) -> int:
    """A `QueueEnd` for a log without consume queues."""
    return 0


class Leftovers:
    """Finds leftover records along a walk that begins at `start`; looks back only where a record is older than its
    predecessor. `queue_end(topic, queue id, offset)`: how many entries a consume queue has of records below an offset.
    """

    def __init__(self, files: SegmentFiles, start: int, queue_end: QueueEnd) -> None:
        self._files, self._queue_end = files, queue_end
        self._next: dict[tuple[bytes, int], int] = {}  # of the records below `_known_to`
        self._known_to = start

    def first_of(self, segment: Segment, rows: Words, stored_before_ms: int) -> int | None:
        """The first of these successive rows that is left over; the record before them was stored at that time."""
        stored = rows[:, Row.STORE_TIMESTAMP]
        before = np.concatenate(([stored_before_ms], stored[:-1]))
        for index in np.flatnonzero(stored < before):
            offset = segment.base_offset + int(rows[index, Row.POSITION])
            if self.is_one(segment, rows[index], int(before[index]), offset):
                return int(index)
        return None

    def is_one(self, segment: Segment, row: Words, stored_before_ms: int, end: int) -> bool:
        """Whether the row's record is left over, if the log has come to `end` at that time."""
        kind = int(row[Row.SYS_FLAG]) & (TRANSACTION_MASK | SysFlag.INNER_BATCH)
        if int(row[Row.STORE_TIMESTAMP]) >= stored_before_ms or kind not in COUNTED_BY_ONE:
            return False
        self._look_up_to(end)
        at, count, queue_id = (int(row[column]) for column in (Row.TOPIC_AT, Row.TOPIC_BYTES, Row.QUEUE_ID))
        topic = segment.array[at : at + count].tobytes()
        following = max(self._next.get((topic, queue_id), 0), self._queue_end(java_text(topic), queue_id, end))
        return following > 0 and int(row[Row.QUEUE_OFFSET]) != following

    def _look_up_to(self, end: int) -> None:
        rows = np.zeros((ROWS, len(Row)), np.int64)
        table, groups = np.zeros(TABLE_WORDS, np.int64), np.zeros((ROWS, len(Group)), np.int64)
        entries, state = np.zeros(ROWS * ENTRY_BYTES, np.uint8), np.zeros(len(Grouping), np.int64)
        grouped, lanes = Groups(table, groups, entries, state), Lanes(0).table()
        while self._known_to < end:
            base = self._files.base_of(self._known_to)
            with self._files.open(base) as segment:
                limit = min(end - base, segment.size_bytes)
                reached, count, stop = kernel.scan(segment.array, self._known_to - base, limit, base, rows)
                group_kernel.group_rows(Scanned(segment.array, base, rows), count, grouped, lanes, NO_BUDGET)
                for group in grouped.rows[: grouped.state[Grouping.QUEUES]]:
                    row = rows[group[Group.FIRST_ROW]]
                    at, size = int(row[Row.TOPIC_AT]), int(row[Row.TOPIC_BYTES])
                    key = segment.array[at : at + size].tobytes(), int(row[Row.QUEUE_ID])
                    self._next[key] = int(group[Group.LAST_QUEUE_OFFSET]) + 1
            is_over = stop == ScanStop.BLANK or count == 0  # nothing else stops a walk that went on from here
            self._known_to = base + self._files.segment_bytes if is_over else base + int(reached)
