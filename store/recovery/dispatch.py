"""Builds consume queues from the log: whatever range it is given, as often as it is given.

Implements: the dispatchers of ReputMessageService (spec: store-formats, 10 to 12 and 20)
The records' own queue offsets say where an entry belongs, never a counter: so a slave builds the queues of its master,
and a range dispatched twice changes nothing. A queue is looked up when the first record for it comes; what it then
holds of records at or above that point (a killed dispatcher's work) is written again, the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from ipc.arrays import Bytes, Words
from store.errors import CorruptRecord
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles
from store.index.service import NO_INDEX, IndexService
from store.message import rows_kernel as kernel
from store.message.delay import DELAYS_MS
from store.message.rows_kernel import Row, Scanned, ScanStop
from store.queues.queue_set import ALONE, PLAIN_QUEUES, ROWS_MAX, Building, QueueKinds, QueueSet
from store.recovery import turn_kernel
from store.recovery.log_end import store_timestamp_ms
from store.recovery.turn_kernel import Done, Turn, TurnWord

BATCH_ROWS = ROWS_MAX
FINDINGS_MAX = 100
STOPS = {
    ScanStop.NO_RECORD: "no record begins here, although the log continues",
    ScanStop.DAMAGED: "its size, lengths or physical offset are wrong",
}


class Dispatcher:
    """Queues by name, and where each ends. One process at a time."""

    def __init__(
        self,
        segment_files: SegmentFiles,
        consumequeue: Path,
        file_bytes: int,
        *,
        refuse_gaps: bool = False,
        index: IndexService | None = None,
        on_rows: Callable[[Bytes, int, Words, int], None] | None = None,
        kinds: QueueKinds = PLAIN_QUEUES,
        building: Building = ALONE,
    ) -> None:
        """`refuse_gaps`: raise QueueGap, nothing written, when a queue lacks entries before a record's (recovery asks,
        because the log may still have them). Else entries go to the queue's end, as RocketMQ does it.
        `kinds`: which queues there are besides the plain ones; their directories stand beside `consumequeue`.
        `on_rows`: called with (segment's bytes, its base offset, rows, how many) once their entries are written."""
        building = building._replace(rows_max=building.rows_max or BATCH_ROWS)
        self._on_rows = on_rows
        self._segments, self._index = segment_files, index
        self.findings: list[str] = []
        self._new_queues = partial(
            QueueSet,
            consumequeue,
            file_bytes,
            kinds,
            self._report,
            refuse_gaps=refuse_gaps,
            building=building,
        )
        self._queues = self._new_queues()
        usual = kinds.delays_ms == DELAYS_MS  # which the scan knows
        self._delays_ms = None if usual else np.array(kinds.delays_ms, np.int64)
        self._segment: Segment | None = None
        self._is_turned = building.open_max > 0 and usual and not refuse_gaps
        self._rows = np.zeros((building.rows_max, len(Row)), np.int64)
        self._turn = np.zeros(len(TurnWord), np.int64)
        self.taken = 0  # records of the last batch

    def close(self) -> None:
        """Unmap the segment, close the queues."""
        self._queues.close()
        self._close_segment()

    def start_over(self, from_offset: int) -> None:
        """Know no queue any more, and take out of the index what lies at or above that offset: it comes again.

        For who begins where another one was killed, or could not finish a batch. Raises OSError, IndexFileDamaged.
        """
        self.close()
        queues = self._new_queues()
        queues.skip_to(self._queues.skipped_to)
        self._queues = queues
        if self._index is not None:
            self._index.cut(from_offset, partial(store_timestamp_ms, self._segments))

    def _close_segment(self) -> None:
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def skip_to(self, physical_offset: int) -> None:
        """Skip what lies below, which has expired: queues begin anew behind it, at their records' numbers."""
        self._queues.skip_to(physical_offset)

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
        """Dispatch one batch: at most `rows_max` records of one segment."""
        segment = self._open(from_offset)
        base, turn = segment.base_offset, self._turn
        limit = min(to_offset, segment.end_offset) - base
        if self._is_turned:
            turn_kernel.take(from_offset - base, limit, self.turn())
        else:
            turn[: TurnWord.DONE] = kernel.scan(segment.array, from_offset - base, limit, base, self._rows)
            turn[TurnWord.DONE] = Done.SCANNED
        return self.finish(from_offset, to_offset)

    @property
    def queues(self) -> int:
        """Return the number of queues that it knows."""
        return self._queues.known

    def is_ready(self, from_offset: int) -> bool:
        """Whether `turn_kernel.take` may be called from there on."""
        segment = self._segment
        return self._is_turned and segment is not None and segment.base_offset <= from_offset < segment.end_offset

    def turn(self) -> Turn:
        """Return that on which `turn_kernel.take` works."""
        assert self._segment is not None
        segment, queues = self._segment, self._queues
        scanned = Scanned(segment.array, segment.base_offset, self._rows)
        keys = NO_INDEX if self._index is None else self._index.opened()
        return Turn(scanned, queues.passed_on, self._turn, queues.open(), keys)

    def finish(self, from_offset: int, to_offset: int) -> int:
        """Do what is left of a batch that was taken; return the offset that it came to."""
        assert self._segment is not None
        segment, base = self._segment, self._segment.base_offset
        limit = min(to_offset, segment.end_offset) - base
        position, count, stop, done, error = self._turn.tolist()
        if error:
            raise self._queues.failure(-error)
        self.taken = self._put(segment, count, done, from_offset) if count else 0
        if self.taken < count:
            return base + int(self._rows[self.taken, Row.POSITION])
        if stop == ScanStop.BLANK and limit == segment.size_bytes:
            return segment.end_offset
        if stop in STOPS and position == from_offset - base:
            raise CorruptRecord(str(segment.path), base + position, STOPS[ScanStop(stop)])
        return base + int(position)

    def _put(self, segment: Segment, count: int, done: int, from_offset: int) -> int:
        """Do what is not done yet of these rows; return how many are."""
        rows = self._rows
        if done == Done.SCANNED:
            if self._delays_ms is not None:
                _deliver_by(self._delays_ms, rows[:count])
            taken = self._queues.put(segment, rows[:count], from_offset)
        else:
            taken = self._queues.taken
            if done == Done.GROUPED:
                self._queues.put_left(segment, rows[:taken], None, from_offset)
        if self._index is not None and done != Done.INDEXED:
            self._index.put(segment, rows, taken)
        if self._on_rows is not None:
            self._on_rows(segment.array, segment.base_offset, rows, taken)
        return taken

    def _open(self, offset: int) -> Segment:
        base = self._segments.base_of(offset)
        if self._segment is None or self._segment.base_offset != base:
            self._close_segment()
            self._segment = self._segments.open(base)
        return self._segment

    def _report(self, finding: str) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)


def _deliver_by(delays_ms: Words, rows: Words) -> None:
    """Give the entries of delayed messages the times of delivery of these levels; above the last they are the last."""
    levels = -rows[:, Row.TAGS_AT]
    delayed = levels > 0
    if delayed.any():
        delays = delays_ms[np.minimum(levels[delayed], len(delays_ms)) - 1]
        rows[delayed, Row.TAGS_CODE] = rows[delayed, Row.STORE_TIMESTAMP] + delays
