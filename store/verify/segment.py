"""Checks one segment's records against themselves and their queues; findings come out, nothing is written.

The kernel does the sound ones. Python looks where it stops: damage, the log's end, queues without files, and what
needs more than one record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ipc.arrays import Words
from store.compat import QueueRules
from store.errors import CorruptRecord
from store.files.segment import Segment
from store.message import delay
from store.message.multi_dispatch import targets
from store.message.properties import PROPERTY_CRC, tags_code
from store.message.record import BLANK_BYTES, Inspection, Kind, Message, decode, inspect
from store.reading.walk import next_record
from store.verify import check_kernel as kernel
from store.verify.check_words import CheckStop, Count, Event, EventKind, Notes, Part, QueueArrays, State
from store.verify.finding import COMPARE, CUT, REBUILD, Finding
from store.verify.queues import QueueTable

EVENTS_MAX = 16384
PAUSE_BYTES = 64 << 20


@dataclass
class SegmentResult:
    """Findings and figures of a segment's check."""

    base_offset: int
    state: Words
    findings: list[Finding] = field(default_factory=list)
    end: int = 0  # of its last record
    behind: int = 0  # records that go into their queues at the next start
    blank_bytes: int = 0
    halves: list[tuple[int, int]] = field(default_factory=list)  # (commit, half message in another segment)
    batches: list[Message] = field(default_factory=list)
    ext_rows: list[Words] = field(default_factory=list)

    @property
    def records(self) -> int:
        """Return the number of sound records."""
        return int(self.state[State.RECORDS])


class SegmentCheck:
    """Checks segments one after the other, with a table of queues of its own."""

    def __init__(
        self,
        table: QueueTable,
        addresses: Words,
        matched: npt.NDArray[np.uint8],
        *,
        end: int | None,
        dispatched: int,
        aborted: bool,
        rules: QueueRules,
        delays_ms: tuple[int, ...] = delay.DELAYS_MS,
    ) -> None:
        self._table, self._addresses, self._matched = table, addresses, matched
        self._end, self._dispatched, self._aborted, self._rules = end, dispatched, aborted, rules
        self._delays = np.array((0, *delays_ms), np.int64)
        self._parts = np.zeros(len(Part), np.int64)
        self._events = np.zeros((EVENTS_MAX, len(Event)), np.int64)

    def run(self, segment: Segment, goes_on: Callable[[], bool], on_progress: Callable[[int], None]) -> SegmentResult:
        """Check it. `goes_on`: whether a later segment has records; `on_progress` may raise to end the check."""
        result = SegmentResult(segment.base_offset, np.zeros(len(State), np.int64))
        self._table.counts.fill(0)
        limit = segment.size_bytes
        if self._end is not None:
            limit = max(0, min(limit, self._end - segment.base_offset))
        position: int | None = 0
        while position is not None and position < limit:
            position, stop = self._compiled(segment, position, limit, result)
            on_progress(position)
            if stop == CheckStop.LIMIT:
                break
            if stop == CheckStop.NEW_QUEUE:
                message = decode(segment.view, position, check_body_crc=False)
                at, count = int(self._parts[Part.TOPIC_AT]), int(self._parts[Part.TOPIC_BYTES])
                self._table.add(segment.array[at : at + count].tobytes(), message.queue_id)
            elif stop != CheckStop.PAUSE:
                position = self._stopped(segment, position, limit, stop, goes_on, result)
        self._queue_findings(segment, result)
        return result

    def _compiled(self, segment: Segment, position: int, limit: int, result: SegmentResult) -> tuple[int, int]:
        table = self._table
        before = result.records
        start = position
        position, stop, count = kernel.check(
            segment.array,
            position,
            limit,
            position + PAUSE_BYTES,
            segment.base_offset,
            self._dispatched,
            QueueArrays(table.slots, table.rows, table.names, table.counts, self._addresses, self._matched),
            Notes(self._delays, result.state, self._parts, self._events),
        )
        if count:
            self._handle(segment, self._events[:count], result)
        if result.records > before or position > start:
            result.end = segment.base_offset + position
        return position, stop

    def _stopped(
        self, segment: Segment, position: int, limit: int, stop: int, goes_on: Callable[[], bool], result: SegmentResult
    ) -> int | None:
        """Say why the records end here; where they go on in this segment."""
        offset = segment.base_offset + position
        inspection = inspect(segment.view, position, offset, check_body_crc=True, limit=limit)
        if stop == CheckStop.PROPERTY_CRC:
            reason = f"its property {PROPERTY_CRC} is not the CRC of the properties before it"
            inspection = Inspection(Kind.CORRUPT, inspection.size, reason)
        elif inspection.kind is Kind.MESSAGE:
            inspection = Inspection(Kind.CORRUPT, inspection.size, "its size, lengths or physical offset are wrong")
        if inspection.kind is Kind.INCOMPLETE:
            return None  # the limit of a store in use lies inside of a record that is being received
        where = f"{segment.path} at offset {offset}"
        if inspection.kind is Kind.BLANK:
            result.blank_bytes = BLANK_BYTES
            result.end = segment.end_offset
            if inspection.reason:
                result.findings.append(Finding("BLANK_SIZE", where, inspection.reason, COMPARE))
            return None
        resume = next_record(segment, position + 1, self._end)
        if resume is not None:
            next_offset = segment.base_offset + resume
            what = f"{inspection.reason or 'zeros'}; the next sound record is at offset {next_offset}"
            result.findings.append(Finding("DAMAGED", where, what, COMPARE))
        elif goes_on():
            what = f"{inspection.reason or 'zeros'}, but the log continues in the next segment"
            result.findings.append(Finding("DAMAGED", where, what, COMPARE))
        elif inspection.reason:
            result.findings.append(Finding("TORN_TAIL", where, f"the log ends here: {inspection.reason}", CUT))
        return resume

    # what needs more than a record and its entry

    def _handle(self, segment: Segment, events: Words, result: SegmentResult) -> None:
        kinds = events[:, Event.EVENT]
        if (ext := events[kinds == EventKind.EXT]).size:
            ext = ext.copy()
            ext[:, Event.POSITION] += segment.base_offset
            result.ext_rows.append(ext)
        for event in events[kinds != EventKind.EXT]:
            kind, position = int(event[Event.EVENT]), int(event[Event.POSITION])
            if kind == EventKind.HALF:
                result.halves.append((segment.base_offset + position, int(event[Event.VALUE])))
                continue
            try:
                message = decode(segment.view, position, check_body_crc=False)
            except CorruptRecord as error:  # the kernel and the codec do not agree: say so rather than go on
                result.findings.append(Finding("DAMAGED", f"{segment.path}", str(error), COMPARE))
                continue
            if kind == EventKind.IN_BATCH:
                result.batches.append(_without_body(message))
            elif kind == EventKind.MULTI:
                self._multi_dispatched(message, result)
            else:
                self._tags_text(message, int(event[Event.QUEUE]), int(event[Event.VALUE]), result)

    def _tags_text(self, message: Message, number: int, code: int, result: SegmentResult) -> None:
        """Tags that are not ASCII: their hash is over UTF-16 units."""
        queue = self._table.queue_of(number)
        wanted = tags_code(message.tags)
        if code != wanted and queue is not None:
            what = f"entry {message.queue_offset} has tags code {code}, its record's tags have {wanted}"
            result.findings.append(Finding("QUEUE_ENTRY", str(queue.queue.directory), what, REBUILD))

    def _multi_dispatched(self, message: Message, result: SegmentResult) -> None:
        """The record's entries in the other queues that it names."""
        others = targets(message.topic, message.queue_id, message.properties, lmq=True, rules=self._rules)
        wanted = (message.physical_offset, message.size, message.tags_code)
        for name, queue_id, queue_offset in others or ():
            queue = self._table.find(name, queue_id)
            entry = None if queue is None else queue.entry(queue_offset)
            if queue is None or entry is None:
                if self._aborted:
                    result.behind += 1
                    continue
                what = f"the record at offset {message.physical_offset} has no entry {queue_offset} in queue {name!r}"
                result.findings.append(Finding("NOT_IN_QUEUE", f"{name}/{queue_id}", what, REBUILD))
            elif tuple(int(entry[field]) for field in ("physical_offset", "size", "tags_code")) == wanted:
                queue.matched[queue_offset - queue.first] = 1
            else:
                what = f"entry {queue_offset} is not that of its record at offset {message.physical_offset}"
                result.findings.append(Finding("QUEUE_ENTRY", str(queue.queue.directory), what, REBUILD))

    def _queue_findings(self, segment: Segment, result: SegmentResult) -> None:
        """Compare this segment's records of each queue with the queue's entries."""
        counts = self._table.counts
        for row_number in np.flatnonzero(counts[: len(self._table.keys)].any(axis=1)).tolist():
            topic, queue_id = self._table.keys[row_number]
            row = [int(word) for word in counts[row_number]]
            queue = self._table.queue_of(row_number)
            if row[Count.WRONG] and queue is not None:
                what = f"{row[Count.WRONG]} entries are not those of their records, first entry"
                what += f" {row[Count.WRONG_ENTRY]}, which should point to offset {row[Count.WRONG_OFFSET]},"
                what += f" size {row[Count.WRONG_SIZE]}"
                result.findings.append(Finding("QUEUE_ENTRY", str(queue.queue.directory), what, REBUILD))
            missing = [(row[at], row[at + 1]) for at in (Count.MISSING, Count.BEHIND) if row[at]]
            if self._aborted:  # the next start brings the queues to the log's end
                result.behind += row[Count.BEHIND]
                missing = missing[: bool(row[Count.MISSING])]
            if missing:
                number, first = sum(count for count, _ in missing), min(offset for _, offset in missing)
                what = f"{number} records of topic {topic!r}, queue {queue_id} have no entry in their queue,"
                what += f" first at offset {first}"
                result.findings.append(Finding("NOT_IN_QUEUE", str(segment.path), what, REBUILD))


def _without_body(message: Message) -> Message:
    """The message without its view of the segment, which is closed by the time it is looked at."""
    message.__dict__["body"] = b""
    return message
