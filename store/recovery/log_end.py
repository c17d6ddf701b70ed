"""Finds where the records of a log end and what lies there; looks, never decides, never writes.

Implements: the walk of CommitLog.recoverNormally and recoverAbnormally (spec: store-formats, section 17)
`find_end` walks whole records from a segment on. Where it stops it collects what the decision
(`store.recovery.recovery.judge`) needs: why it stopped, whether a sound record lies anywhere behind, and which bytes
behind are not zero. Reserved blocks that were never written are skipped without being read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ipc.arrays import Words
from store.files import file_io
from store.files.checkpoint import Checkpoint
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles
from store.message import rows_kernel as kernel
from store.message.measure import PROPERTIES_LENGTH_BYTES
from store.message.record import PHYSICAL_OFFSET_AT, Kind, inspect
from store.message.rows_kernel import Row, ScanStop
from store.recovery.leftovers import Leftovers, QueueEnd, no_queues

ROWS = 16384
STEP_BYTES = 1 << 20
LOOK_BACK_BYTES = 16 << 20
PAGE_BYTES = 4096  # a block of most file systems: a larger page of memory comes to disk block by block
CLEAN_SEGMENTS = 3  # RocketMQ 4.9 walks the last three after a clean stop
REASONS = {
    ScanStop.PARTIAL: "it reaches beyond the segment's end",
    ScanStop.NO_RECORD: "no magic number",
    ScanStop.DAMAGED: "its size, lengths or physical offset are wrong",
}


class Dirty(NamedTuple):
    """Bytes behind the end, in one segment, from the first to the last that is not zero."""

    base_offset: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The findings where the records end."""

    offset: int  # the first byte that is not in a sound record
    path: str  # the file it lies in
    reason: str  # what is wrong there; "" when it is zeros or the end of the last segment
    sound_behind: int | None = None  # where a sound record lies behind it
    displaced: int | None = None  # a segment begins with a sound record of this other offset
    dirty: list[Dirty] = field(default_factory=list)
    records: int = 0
    records_behind: int = 0  # how many sound ones there are; counted after a power cut only, else the search ends


def new_rows(count: int) -> Words:
    """Room for the kernel's rows."""
    return np.zeros((count, len(Row)), np.int64)


def store_timestamp_ms(files: SegmentFiles, physical_offset: int) -> int | None:
    """The store time of the record that begins there, None when no sound one does."""
    rows = new_rows(1)
    base = files.base_of(physical_offset)
    if not files.path_of(base).exists():
        return None
    with files.open(base) as segment:
        _, count, _ = kernel.scan(segment.array, physical_offset - base, segment.size_bytes, base, rows)
    return int(rows[0, Row.STORE_TIMESTAMP]) if count else None


def bytes_missing(files: SegmentFiles, start: int, end: int) -> int | None:
    """Return how many bytes the last record lacks of a log that ends at `end`; None where that is unknown.

    A record, or a blank record, begins at `start`.
    """
    rows = new_rows(ROWS)
    while start < end:
        base = files.base_of(start)
        with files.open(base) as segment:
            limit = min(end - base, segment.size_bytes)
            reached, _, stop = kernel.scan(segment.array, start - base, limit, base, rows)
            start = base + int(reached)
            if stop in (ScanStop.BLANK, ScanStop.PARTIAL) and start + kernel.BLANK_BYTES <= end:
                start += int.from_bytes(segment.view[start - base : start - base + 4], "big")
            elif stop not in (ScanStop.LIMIT, ScanStop.ROWS_FULL):
                return None
    return start - end


def first_base_to_walk(files: SegmentFiles, bases: Sequence[int], checkpoint: Checkpoint, clean: bool) -> int:
    """The segment where the walk begins: everything before it was on disk and whole at the checkpoint."""
    known = checkpoint.flushed_offset
    if known is not None and bases[0] <= known <= bases[-1] + files.segment_bytes:
        return min(files.base_of(known), bases[-1])
    candidates = bases[: max(1, len(bases) - CLEAN_SEGMENTS + 1)] if clean else bases
    for base in reversed(candidates):
        stored_ms = store_timestamp_ms(files, base)
        if stored_ms is not None and (clean or 0 < stored_ms <= checkpoint.min_timestamp_ms):
            return base
    return bases[0]


def first_record_to_walk(files: SegmentFiles, base: int, floor: int) -> int:
    """Return where in the segment `base` the walk begins, if everything below `floor` was on disk.

    Not far before it, so that the walk's length does not depend on how full the segment is.
    """
    low = min(floor, base + files.segment_bytes) - LOOK_BACK_BYTES
    if low <= base:
        return base
    with files.open(base) as segment:
        position = int(kernel.find_record(segment.array, low - base, low - base + LOOK_BACK_BYTES, base, new_rows(1)))
    return base + max(position, 0)


def find_end(
    files: SegmentFiles,
    bases: Sequence[int],
    start: int,
    check_crc: bool,
    whole_to: int = 0,
    *,
    power_cut: bool = False,
    stored_before_ms: int = 0,
    queue_end: QueueEnd = no_queues,
) -> LogEnd:
    """Walk from the record at `start` to the end of the records; those below `whole_to` came there as they were put.

    A body has a CRC, topic and properties have none. Bytes that never came to disk are zeros. So above `whole_to` the
    last record is not taken for whole when its text ends in zeros. After a `power_cut` no record is taken for whole
    whose last bytes in a page are zeros, with only zeros behind them in that page: the disk may lack that page.
    `stored_before_ms`, `queue_end`: what is known of the log before `start`, so that records left over from an earlier
    use of the bytes are distinguished from its own.
    """
    walk = _Walk(check_crc, whole_to, power_cut, Leftovers(files, start, queue_end), stored_before_ms)
    first = max(0, sum(base <= start for base in bases) - 1)
    for index in range(first, len(bases)):
        with files.open(bases[index]) as segment:
            position = walk.through(segment, max(0, start - bases[index]))
            if position is None:
                continue
            behind, dirty = _look_behind(files, segment, position, bases[index + 1 :], walk)
            reason = walk.reason if dirty else ""  # zeros from here on: the plain end of a log
            offset = segment.base_offset + position
            displaced = _displaced(segment) if position == 0 and dirty else None
            return LogEnd(
                offset, str(segment.path), reason, behind, displaced, dirty, walk.records, walk.records_behind
            )
    end = bases[-1] + files.segment_bytes
    return LogEnd(end, str(files.path_of(bases[-1])), "", records=walk.records)


def _displaced(segment: Segment) -> int | None:
    """The offset that a sound record at the segment's beginning claims, where it is not its own: then the file is of
    another log, or under another one's name. Inside of a segment such bytes are what an earlier use left there."""
    if inspect(segment.view, 0, None, check_body_crc=True).kind is not Kind.MESSAGE:
        return None
    claimed = int.from_bytes(segment.view[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big", signed=True)
    return None if claimed == segment.base_offset else claimed


class _Walk:
    """A walk over records: where it is, and what it has seen."""

    def __init__(
        self, check_crc: bool, whole_to: int, power_cut: bool, leftovers: Leftovers, stored_before_ms: int
    ) -> None:
        self._check_crc, self._whole_to, self._leftovers = check_crc or power_cut, whole_to, leftovers
        self.power_cut = power_cut
        self.rows = new_rows(ROWS)
        self.records, self.last_ms, self.records_behind = 0, stored_before_ms, 0
        self.reason = ""  # why it stopped

    def through(self, segment: Segment, position: int) -> int | None:
        """Walk a segment from `position` on; where it stopped, None when the segment is whole, up to its end."""
        last_row = self.rows[0].copy()
        last_row[Row.SIZE] = 0
        while True:
            reached, count, stop = kernel.scan(
                segment.array, position, segment.size_bytes, segment.base_offset, self.rows
            )
            good = self._good_rows(segment, count)
            if good:
                last_row = self.rows[good - 1].copy()
                self.records, self.last_ms = self.records + good, int(last_row[Row.STORE_TIMESTAMP])
            if good < count:
                return int(self.rows[good, Row.POSITION])
            if stop in (ScanStop.BLANK, ScanStop.LIMIT):
                return None
            if stop != ScanStop.ROWS_FULL:
                last_end = segment.base_offset + reached
                if last_row[Row.SIZE] and last_end > self._whole_to and _ends_in_zeros(segment, last_row):
                    self.records, self.reason = self.records - 1, "its last bytes are missing"
                    return int(last_row[Row.POSITION])
                self.reason = REASONS[stop]
                return int(reached)
            position = reached

    def _good_rows(self, segment: Segment, count: int) -> int:
        """Return how many of the first `count` rows are of this log; `reason` tells about the next one."""
        rows = self.rows[:count]
        if not self.is_sound(segment, count):
            rows = rows[: int(kernel.first_bad_crc(segment.array, rows, count))]
            self.reason = "the CRC of its body is wrong"
        if self.power_cut:
            whole = self._lacking_a_page(segment, rows)
            if whole < len(rows):
                rows, self.reason = rows[:whole], "bytes up to the end of a page are missing"
        left_over = self._leftovers.first_of(segment, rows, self.last_ms)
        if left_over is None:
            return len(rows)
        self.reason = "it is from an older log: older than the record before it, and not the next of its queue"
        return left_over

    def _lacking_a_page(self, segment: Segment, rows: Words) -> int:
        """The first of these rows whose text, which no CRC protects, may lack the end of a page; their number if none.

        A page of a log is filled from its beginning: what is not zero vouches for all before it in its page, be it of
        the next record. That one may have but the zeros of its size there.
        """
        text_at, ends = rows[:, Row.TOPIC_AT], rows[:, Row.POSITION] + rows[:, Row.SIZE]
        topic_ends = text_at + rows[:, Row.TOPIC_BYTES]
        text_ends = np.where(topic_ends + PROPERTIES_LENGTH_BYTES < ends, ends, topic_ends)
        to_look_at = (text_at // PAGE_BYTES < ends // PAGE_BYTES) | (segment.array[text_ends - 1] == 0)
        for index in np.flatnonzero(to_look_at & (ends + segment.base_offset > self._whole_to)):
            if not all(_is_vouched_for(segment, at) for at in _last_bytes_in_pages(rows[index])):
                return int(index)
        return len(rows)

    def is_sound(self, segment: Segment, count: int) -> bool:
        """Whether the bodies of the first `count` rows are what their CRCs say, if these are to be checked."""
        return not self._check_crc or int(kernel.first_bad_crc(segment.array, self.rows, count)) < 0

    def may_follow(self, segment: Segment) -> bool:
        """Whether the record of row 0, behind the log's end, may be one of this log: an older one is left over."""
        return int(self.rows[0, Row.STORE_TIMESTAMP]) >= self.last_ms and self.is_sound(segment, 1)


def _ends_in_zeros(segment: Segment, row: Words) -> bool:
    """Whether the topic, or the properties if there are any, end in a zero byte."""
    topic_end = int(row[Row.TOPIC_AT] + row[Row.TOPIC_BYTES])
    end = int(row[Row.POSITION] + row[Row.SIZE])
    has_properties = end > topic_end + PROPERTIES_LENGTH_BYTES
    return bool(segment.array[topic_end - 1] == 0 or (has_properties and segment.array[end - 1] == 0))


def _last_bytes_in_pages(row: Words) -> Iterator[int]:
    """The last byte of the topic or the properties in each page that they lie in."""
    topic_at, end = int(row[Row.TOPIC_AT]), int(row[Row.POSITION] + row[Row.SIZE])
    topic_end = topic_at + int(row[Row.TOPIC_BYTES])
    properties_at = topic_end + PROPERTIES_LENGTH_BYTES
    for page in range(topic_at // PAGE_BYTES * PAGE_BYTES, end, PAGE_BYTES):
        last = min(page + PAGE_BYTES, end) - 1
        yield last if not topic_end <= last < properties_at else topic_end - 1  # a length may well have zeros


def _is_vouched_for(segment: Segment, at: int) -> bool:
    """Whether the byte there, or one behind it in its page, is not zero."""
    return bool(segment.array[at : at // PAGE_BYTES * PAGE_BYTES + PAGE_BYTES].any())


def _look_behind(
    files: SegmentFiles, segment: Segment, position: int, later: Sequence[int], walk: _Walk
) -> tuple[int | None, list[Dirty]]:
    """The first record of this log behind `position`, and what is not zero from there on.

    The search ends at such a record; after a power cut it goes on, because all of it is to be cut, and counted.
    """
    dirty: list[Dirty] = []
    behind = _look_in(segment, position, position + 1, walk, dirty)
    for base in later:
        if behind is not None and not walk.power_cut:
            break
        with files.open(base) as following:
            offset = _look_in(following, 0, 0, walk, dirty)
            behind = offset if behind is None else behind
    return behind, dirty


def _look_in(segment: Segment, start: int, search_start: int, walk: _Walk, dirty: list[Dirty]) -> int | None:
    """The first record of this log from `search_start` on; what is not zero from `start` on is added to `dirty`."""
    ranges = list(not_zero(segment, start))
    if ranges:
        dirty.append(Dirty(segment.base_offset, ranges[0][0], ranges[-1][1]))
    sound, at = None, search_start
    for low, high in ranges:
        at = max(at, low - kernel.BLANK_BYTES, search_start)  # a record's first bytes may be zeros (its size's)
        while at < high:
            at = int(kernel.find_record(segment.array, at, high, segment.base_offset, walk.rows))
            if at < 0:
                break
            if not walk.may_follow(segment):
                at += 1
                continue
            sound = segment.base_offset + at if sound is None else sound
            if not walk.power_cut:
                return sound
            walk.records_behind += 1
            at += int(walk.rows[0, Row.SIZE])
    return sound


def not_zero(segment: Segment, start: int) -> Iterator[tuple[int, int]]:
    """Ranges that cover every byte from `start` on that is not zero, exact at their outer ends."""
    # All of them are asked for before anything is read: reading ahead makes data of the reserved blocks that follow.
    for low, high in list(file_io.data_ranges(segment.fd, start, segment.size_bytes)):
        for step in range(low, high, STEP_BYTES):
            # A copy: a broker that has started meanwhile may write there, and numpy refuses to count what changes.
            positions = np.flatnonzero(segment.array[step : min(step + STEP_BYTES, high)].copy())
            if len(positions):
                yield step + int(positions[0]), step + int(positions[-1]) + 1
