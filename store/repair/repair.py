"""Repairs a damaged log from another store's copy of it: only ranges that are damaged here and sound there.

A range begins where the records end here and reaches to the next sound one, or to where the log was on disk. It is
taken over when the other store has sound records at just these offsets, each with its CRC, and a neighbour of the range
is equal in both: so it is the same log. A record before it whose last bytes went with a page is part of the range. What
a CRC does not cover is repaired where a digest tells that it changed, and that the other's segment is right.

Each range is written to a journal first, durably, then into its place: a crash leaves the old bytes or a journal that
the next repair or the next start of a broker finishes, if nobody wrote to the log in between (`repair.journal`). The
caller holds the store's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from ipc.descriptors import closing_fd
from store.errors import NotAStore
from store.files import checkpoint as checkpoint_file
from store.files import file_io
from store.files.directory import StoreDirectory
from store.files.own_files import make_own
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles, named_files
from store.message import rows_kernel as layout
from store.message.record import BLANK_BYTES, Kind, inspect
from store.message.rows_kernel import Row, ScanStop
from store.names import REPAIR_JOURNAL
from store.reading.log_reader import LogReader
from store.reading.walk import next_record, walk_segment
from store.recovery import last_run
from store.repair.journal import Bound, Journal
from store.verify import check_kernel as kernel
from store.verify import digests
from store.verify.check_words import CheckStop, Count, Event, Notes, Part, Queue, QueueArrays, State

JOURNAL_MAGIC = b"SLIPREP2"
PART_BYTES_MAX = 64 << 20  # a longer range is repaired in parts that end where records do
ROWS = 32768
Progress = Callable[[int, int], None]


class Damaged(NamedTuple):
    """A range of the log that is not sound here; it lies in one segment."""

    start: int
    end: int
    reason: str


class Outcome(NamedTuple):
    """The outcome of a range's repair; `refused` says why it was left as it is."""

    damaged: Damaged
    refused: str = ""


class Repair:
    """The repair of one store from another."""

    def __init__(self, directory: StoreDirectory, files: SegmentFiles, other: LogReader) -> None:
        """Take both logs. Raises NotAStore when the other's segments are of another size."""
        self._directory, self._files, self._other = directory, files, other
        if other.files is None or other.files.segment_bytes != files.segment_bytes:
            size = other.files.segment_bytes if other.files else 0
            reason = f"its segments have {size} bytes, here they have {files.segment_bytes}: so offsets differ"
            raise NotAStore(str(other.directory.root), reason)
        self._theirs = other.files
        checkpoint = checkpoint_file.read(directory.checkpoint)
        self._floor = max(last_run.read(directory).flushed_offset, checkpoint.flushed_offset or 0)  # it was on disk

    def run(self, *, dry_run: bool, on_progress: Progress) -> Iterator[Outcome]:
        """Go through the log; each damaged range, repaired (with `dry_run`: repairable) or refused."""
        bases = [base for base, size in named_files(self._files.directory) if size]
        low, high = bases[0], max(bases[-1], self._files.base_of(max(0, self._floor - 1))) + self._files.segment_bytes
        known, last = digests.read(self._directory.root), self._last_in_use(bases)
        for base in range(low, high, self._files.segment_bytes):
            on_progress(base - low, high - low)
            for damaged in list(self._damaged_in(base, base in bases, last=base >= last)):
                damaged = self._with_record_before(damaged)
                refused = self._why_not(damaged)
                if not refused and not dry_run:
                    self._take_over(damaged)
                yield Outcome(damaged, refused)
            if base in bases and base in known:
                yield from self._by_digest(base, known[base], dry_run=dry_run)
        on_progress(high - low, high - low)

    # what is damaged here

    def _last_in_use(self, bases: list[int]) -> int:
        """The last segment that holds a record: what is wrong behind its records is the log's end."""
        for base in reversed(bases):
            with self._files.open(base) as segment:
                if next_record(segment, 0) is not None:
                    return base
        return bases[0]

    def _damaged_in(self, base: int, present: bool, *, last: bool) -> Iterator[Damaged]:
        end = base + self._files.segment_bytes
        if not present:
            yield Damaged(base, min(end, self._floor) if last and self._floor > base else end, "the file is missing")
            return
        with self._files.open(base) as segment:
            position: int | None = 0
            while position is not None and position < segment.size_bytes:
                position = _sound_end(segment, position)
                inspection = inspect(segment.view, position, base + position, check_body_crc=True)
                if inspection.kind is Kind.BLANK and not inspection.reason:
                    return
                start, position = position, next_record(segment, position + 1)
                if position is None and last:
                    if base + start >= self._floor:
                        return  # the log's end, or a torn tail: the next start of a broker cuts that off
                    position = min(self._floor - base, segment.size_bytes)
                reason = inspection.reason or "its property CRC, size, lengths or physical offset are wrong"
                yield Damaged(base + start, end if position is None else base + position, reason)

    def _by_digest(self, base: int, digest: str, *, dry_run: bool) -> Iterator[Outcome]:
        """A segment whose records are sound, and whose bytes are not those that the digest was made of."""
        with self._files.open(base) as mine:
            if digests.digest_of(mine, lambda _done: None) == digest:
                return
            whole = Damaged(base, mine.end_offset, "its SHA-256 differs from the digest")
            if not self._theirs.path_of(base).exists() or mine.end_offset > self._other.max_offset:
                yield Outcome(whole, "the other store has only a part of this segment")
                return
            with self._theirs.open(base) as theirs:
                if digests.digest_of(theirs, lambda _done: None) != digest:
                    yield Outcome(whole, "the other store's segment does not match that digest either")
                    return
                differing = np.flatnonzero(mine.array != theirs.array)
                runs = np.split(differing, np.flatnonzero(np.diff(differing) > file_io.PAGE_BYTES) + 1)
                ranges = [(base + int(run[0]), base + int(run[-1]) + 1) for run in runs if len(run)]
        for start, end in ranges:
            if not dry_run:
                for at in range(start, end, PART_BYTES_MAX):
                    self._write(at, self._their_bytes(at, min(at + PART_BYTES_MAX, end)))
            yield Outcome(Damaged(start, end, whole.reason))

    # whether the other has it

    def _why_not(self, damaged: Damaged) -> str:
        """Return why the other store's bytes are not taken; empty when they are."""
        base = self._files.base_of(damaged.start)
        limit = self._other.max_offset
        if not self._other.min_offset <= damaged.start or damaged.end > limit:
            return f"the other store holds only offsets {self._other.min_offset} to {limit}"
        if not self._theirs.path_of(base).exists():
            return "the other store does not have this segment"
        with self._theirs.open(base) as theirs:
            sound = _sound_end(theirs, damaged.start - base)
            if base + sound < damaged.end:
                inspection = inspect(theirs.view, sound, base + sound, check_body_crc=True)
                if inspection.kind is not Kind.BLANK or inspection.reason or damaged.end != theirs.end_offset:
                    return f"the other store is also damaged there (offset {base + sound})"
            elif damaged.end < min(theirs.end_offset, limit) and not self._begins_record(theirs, damaged.end):
                return f"no record of the other store begins at offset {damaged.end}"
        return self._is_other_log(damaged)

    @staticmethod
    def _begins_record(segment: Segment, offset: int) -> bool:
        position = offset - segment.base_offset
        return inspect(segment.view, position, offset, check_body_crc=True).kind is Kind.MESSAGE

    def _with_record_before(self, damaged: Damaged) -> Damaged:
        """The range, with the record before it if that lacks bytes: no CRC covers topic and properties, which a lost
        page may have taken with it. All bytes that differ from the other store's are zeros here then."""
        before = self._record_before(damaged.start)
        if before is None or before[0] < self._other.min_offset or before[1] > self._other.max_offset:
            return damaged
        mine, theirs = (np.frombuffer(self._bytes(files, *before), np.uint8) for files in (self._files, self._theirs))
        is_short = len(mine) == len(theirs) and not mine[mine != theirs].any() and bool((mine != theirs).any())
        same_segment = self._files.base_of(before[0]) == self._files.base_of(damaged.start)
        return Damaged(before[0], damaged.end, damaged.reason) if is_short and same_segment else damaged

    def _is_other_log(self, damaged: Damaged) -> str:
        """Return why the other store is another log: no record beside the damage is equal; empty where it is not."""
        compared = 0
        for neighbour in (self._record_before(damaged.start), self._record_at(damaged.end)):
            if neighbour is None:
                continue
            start, end = neighbour
            if end > self._other.max_offset or start < self._other.min_offset:
                continue
            mine = self._bytes(self._files, start, end)
            if mine != self._bytes(self._theirs, start, end):
                return f"it is another log: the neighbouring records at offset {start} differ"
            compared += 1
        return "" if compared else "no sound record next to the range is in both stores; it may be another log"

    def _record_before(self, offset: int) -> tuple[int, int] | None:
        """The sound record (or a segment's blank record) that ends at `offset` here."""
        base = self._files.base_of(offset)
        if base == offset:
            base -= self._files.segment_bytes
        if base < 0 or not self._files.path_of(base).exists():
            return None
        with self._files.open(base) as segment:
            last, position = None, 0
            rows = np.zeros((ROWS, len(Row)), np.int64)
            while position < offset - base:
                after, count, stop = layout.scan(segment.array, position, offset - base, base, rows)
                if count:
                    last = base + int(rows[count - 1, Row.POSITION]), base + int(after)
                if stop == ScanStop.DAMAGED or stop == ScanStop.NO_RECORD:
                    resume = next_record(segment, int(after) + 1)
                    if resume is None:
                        break
                    after = resume
                elif stop != ScanStop.ROWS_FULL:
                    break
                position = int(after)
        return last

    def _record_at(self, offset: int) -> tuple[int, int] | None:
        base = self._files.base_of(offset)
        if not self._files.path_of(base).exists():
            return None
        with self._files.open(base) as segment:
            inspection = inspect(segment.view, offset - base, offset, check_body_crc=True)
        return (offset, offset + inspection.size) if inspection.kind is Kind.MESSAGE else None

    @staticmethod
    def _bytes(files: SegmentFiles, start: int, end: int) -> bytes:
        base = files.base_of(start)
        if not files.path_of(base).exists():
            return b""
        with files.open(base) as segment:
            return bytes(segment.view[start - base : end - base])

    def _their_bytes(self, start: int, end: int) -> bytes:
        return self._bytes(self._theirs, start, end)

    # taking it

    def _take_over(self, damaged: Damaged) -> None:
        if not self._files.path_of(self._files.base_of(damaged.start)).exists():
            self._files.reserve(damaged.start)
        start = damaged.start
        for end in self._part_ends(damaged):
            self._write(start, self._their_bytes(start, end))
            start = end

    def _part_ends(self, damaged: Damaged) -> Iterator[int]:
        """Yield where the parts of a range end: at its end, and before that where a record does."""
        base, start = self._theirs.base_of(damaged.start), damaged.start
        with self._theirs.open(base) as theirs:
            for step in walk_segment(theirs, damaged.start - base, damaged.end):
                end = step.physical_offset + step.inspection.size
                if step.inspection.kind is Kind.MESSAGE and end - start > PART_BYTES_MAX and end < damaged.end:
                    yield end
                    start = end
                elif step.inspection.kind is Kind.BLANK:
                    yield step.physical_offset + BLANK_BYTES  # what lies behind it is no data
                    return
        yield damaged.end

    def _write(self, offset: int, data: bytes) -> None:
        _journal(self._directory, self._files).run(offset, partial(_put, self._files), data)


def finish(directory: StoreDirectory, files: SegmentFiles) -> Damaged | None:
    """Write what an interrupted repair left in its journal; what that was. None when there was none, or it was set
    aside. Raises OSError."""
    bound = _journal(directory, files).finish(partial(_put, files))
    if bound is None:
        return None
    return Damaged(bound.offset, bound.offset + len(bound.data), "left by an interrupted repair")


def _journal(directory: StoreDirectory, files: SegmentFiles) -> Journal:
    return Journal(directory.root / REPAIR_JOURNAL, JOURNAL_MAGIC, files)


def _put(files: SegmentFiles, bound: Bound) -> None:
    base = files.base_of(bound.offset)
    make_own(files.path_of(base))
    with closing_fd(file_io.open_file(files.path_of(base), writable=True)) as fd:
        file_io.write_at(fd, bound.data, bound.offset - base)
        file_io.sync_data(fd)


def _sound_end(segment: Segment, position: int) -> int:
    """Return where the sound records from `position` on end; CRCs are looked at, queues are not."""
    nothing, no_names, counts = np.zeros(1, np.int64), np.zeros(64, np.uint8), np.zeros((1, len(Count)), np.int64)
    rows, no_entries = np.zeros((1, len(Queue)), np.int64), np.zeros(1, np.uint8)
    queues = QueueArrays(nothing, rows, no_names, counts, nothing, no_entries)
    state, parts = np.zeros(len(State), np.int64), np.zeros(len(Part), np.int64)
    notes = Notes(nothing, state, parts, np.zeros((ROWS, len(Event)), np.int64))
    stop = CheckStop.PAUSE
    while stop == CheckStop.PAUSE:
        position, stop, _ = kernel.check(
            segment.array,
            position,
            segment.size_bytes,
            segment.size_bytes,
            segment.base_offset,
            0,
            queues,
            notes,
        )
    return int(position)
