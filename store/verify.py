"""Checks a whole store: every record, every queue entry against its record, every record against its entry.

What is wrong comes out as findings that say what, where and what to do; nothing is ever written. Records are looked at
segment by segment, their queue entries compared in bulk, so memory is bounded by one segment's records and a byte for
each queue entry. What a broker repairs by itself at its next start is told apart in the advice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from store.consume_queue import ENTRY_BYTES, PREFILL_SIZE, ConsumeQueue, queue_directories
from store.delay import SCHEDULE_TOPIC
from store.directory import StoreDirectory
from store.errors import QueueFileMismatch
from store.loaded import batch_topics_of
from store.log_reader import store_directory
from store.record import TRANSACTION_MASK, Kind, Message, SysFlag, decode, inspect
from store.segment import Segment
from store.segment_files import SegmentFiles, named_files, segment_bytes_of
from store.walk import Step, next_record, walk_segment

EXT_ADDRESS_MAX = -2147483649  # at and below: not a hash but the address of a consume queue extension unit
MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
ROWS_PER_STEP = 4096
NOT_HALF = (0, SysFlag.TRANSACTION_COMMIT)
COMPARE = "compare this part of the log with a replica's (`slipstream log diff`) and restore the segment from there"
REBUILD = "stop the broker and remove this queue's directory: its next start builds the queue again from the log"
CUT = "the next start of a broker cuts it off; it was never acknowledged as written to disk"

QueueKey = tuple[str, int]
Rows = list[tuple[int, int, int, int]]  # queue offset, physical offset, size, tags code


class Finding(NamedTuple):
    """Something that is not as it should be."""

    code: str
    where: str
    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.code}: {self.where}: {self.what}; {self.advice}"


@dataclass
class Verification:
    """A check in progress: iterate over `findings()`, look at the counts meanwhile and afterwards.

    `end` and `dispatched` are a running broker's: the log ends at `end`, the queues may end at `dispatched`.
    """

    root: Path
    end: int | None = None
    dispatched: int | None = None
    records: int = 0
    bytes_checked: int = 0
    bytes_total: int = 0
    entries: int = 0
    queues: int = 0
    not_yet_in_queues: int = 0
    max_offset: int = 0
    on_progress: Callable[[], None] | None = None
    _directory: StoreDirectory = field(init=False)
    _batch_topics: frozenset[str] = field(init=False)
    _queues: dict[QueueKey, _QueueCheck] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._directory = store_directory(self.root)
        self._batch_topics = batch_topics_of(self.root)

    def findings(self) -> Iterator[Finding]:
        """Go through the store. Raises NotAStore, SegmentSizeMismatch."""
        commitlog = self._directory.commitlog
        bases = [base for base, size in named_files(commitlog) if size]
        if not bases:
            return
        files = SegmentFiles(commitlog, segment_bytes_of(commitlog))
        self.bytes_total = (self.end if self.end is not None else bases[-1] + files.segment_bytes) - bases[0]
        yield from self._open_queues()
        yield from _gaps(files, bases)
        for index, base in enumerate(bases):
            if self.end is not None and base >= self.end:
                break
            with files.open(base) as segment:
                yield from self._segment(segment, files, bases, last=not self._goes_on(files, bases[index + 1 :]))
            self.bytes_checked = base + files.segment_bytes - bases[0]
        self.bytes_checked = self.bytes_total
        for check in self._queues.values():
            yield from check.unmatched(bases[0], self._queue_limit(), files)

    def _goes_on(self, files: SegmentFiles, later: list[int]) -> bool:
        """Whether a record lies in a later segment."""
        for base in later:
            if self.end is not None and base >= self.end:
                return False
            with files.open(base) as segment:
                if next_record(segment, 0, self.end) is not None:
                    return True
        return False

    def _open_queues(self) -> Iterator[Finding]:
        for topic, queue_id, path in queue_directories(self._directory.consumequeue):
            try:
                self._queues[topic, queue_id] = _QueueCheck(topic, queue_id, ConsumeQueue.open(path))
            except QueueFileMismatch as error:
                yield Finding("QUEUE_FILES", str(path), str(error), REBUILD)
                continue
            self.queues += 1
            self.entries += self._queues[topic, queue_id].count

    def _segment(self, segment: Segment, files: SegmentFiles, bases: list[int], *, last: bool) -> Iterator[Finding]:
        rows: dict[QueueKey, Rows] = {}
        position: int | None = 0
        while position is not None:
            stop: Step | None = None
            for step in walk_segment(segment, position, self.end, check_body_crc=True):
                if step.found.kind is not Kind.MESSAGE:
                    stop = step
                    break
                message = decode(step.record, check_body_crc=False)
                self._count(message, bases[0])
                if message.topic not in self._batch_topics:
                    _add_row(rows, message)
                if message.sys_flag & TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT:
                    yield from self._half_message(message, files, bases)
            if stop is None:
                break
            position = None
            if stop.found.kind not in (Kind.BLANK, Kind.INCOMPLETE):
                position = next_record(segment, stop.physical_offset + 1 - segment.base_offset, self.end)
            yield from _stop_findings(segment, stop, position, last)
        for key, of_queue in rows.items():
            yield from self._entries_of(key, of_queue, segment)

    def _count(self, message: Message, first: int) -> None:
        self.records += 1
        self.max_offset = message.physical_offset + message.size
        if not self.records % ROWS_PER_STEP:
            self.bytes_checked = self.max_offset - first
            if self.on_progress is not None:
                self.on_progress()

    def _half_message(self, message: Message, files: SegmentFiles, bases: list[int]) -> Iterator[Finding]:
        """A committed message names its half message: there must be one, unless its segment is gone."""
        offset = message.prepared_transaction_offset
        base = files.base_of(offset)
        if base not in bases or offset >= message.physical_offset:
            return
        with files.open(base) as segment:
            found = inspect(segment.view, offset - base, offset, check_body_crc=False)
        if found.kind is not Kind.MESSAGE:
            where = f"{files.path_of(files.base_of(message.physical_offset))} at offset {message.physical_offset}"
            yield Finding("HALF_MESSAGE", where, f"no record at {offset}, where its half message should lie", COMPARE)

    def _entries_of(self, key: QueueKey, rows: Rows, segment: Segment) -> Iterator[Finding]:
        """One segment's records of one queue against the queue's entries."""
        wanted = np.array(rows, np.int64)
        wanted = wanted[wanted[:, 1] < self._queue_limit()]
        if not len(wanted):
            return
        check = self._queues.get(key)
        if check is None:
            missing = wanted
        else:
            missing, wrong = check.match(wanted)
            if len(wrong):
                what = f"{len(wrong)} entries are not those of their records, first entry {wrong[0, 0]}, which should"
                what += f" point to offset {wrong[0, 1]}, size {wrong[0, 2]}"
                yield Finding("QUEUE_ENTRY", str(check.queue.directory), what, REBUILD)
        if self._directory.was_aborted():  # the next start brings the queues to the log's end
            behind = missing[:, 0] >= (check.first + check.count if check else 0)
            self.not_yet_in_queues += int(behind.sum())
            missing = missing[~behind]
        if not len(missing):
            return
        what = f"{len(missing)} records of topic {key[0]!r}, queue {key[1]} have no entry in their queue"
        what += f", first at offset {missing[0, 1]}"
        yield Finding("NOT_IN_QUEUE", str(segment.path), what, REBUILD)

    def _queue_limit(self) -> int:
        return (1 << 62) if self.dispatched is None else self.dispatched


class _QueueCheck:
    """One queue and which of its entries records were found for."""

    def __init__(self, topic: str, queue_id: int, queue: ConsumeQueue) -> None:
        self.topic, self.queue_id, self.queue = topic, queue_id, queue
        bases = queue.bases()
        self.first = bases[0] // ENTRY_BYTES if bases else 0
        self.count = queue.max_offset - self.first if bases else 0
        self._matched = np.zeros(self.count, np.bool_)

    def match(self, wanted: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(rows without an entry, rows whose entry is another's)."""
        inside = (wanted[:, 0] >= self.first) & (wanted[:, 0] < self.first + self.count)
        rows, missing = wanted[inside], wanted[~inside]
        if not len(rows):
            return missing, rows
        low = int(rows[:, 0].min())
        entries = self.queue.entries(low, int(rows[:, 0].max()) + 1)[rows[:, 0] - low]
        codes = entries["tags_code"].astype(np.int64)
        good = (entries["physical_offset"] == rows[:, 1]) & (entries["size"] == rows[:, 2])
        if self.topic != SCHEDULE_TOPIC:  # there it is the deliver time, by levels that we do not know
            good &= (codes == rows[:, 3]) | (codes <= EXT_ADDRESS_MAX)
        self._matched[rows[good, 0] - self.first] = True
        return missing, rows[~good]

    def unmatched(self, min_offset: int, limit: int, files: SegmentFiles) -> Iterator[Finding]:
        """Entries below `limit` that no record of this queue was found for."""
        open_ones = np.flatnonzero(~self._matched)
        bad: list[int] = []
        for start in range(0, len(open_ones), ROWS_PER_STEP):
            part = open_ones[start : start + ROWS_PER_STEP]
            low = self.first + int(part[0])
            entries = self.queue.entries(low, self.first + int(part[-1]) + 1)[part - part[0]]
            offsets = entries["physical_offset"].astype(np.int64)
            own = (entries["size"] != PREFILL_SIZE) & (offsets >= min_offset) & (offsets < limit)
            bad += [int(part[i]) for i in np.flatnonzero(own) if not self._is_dispatched_here(entries[i], files)]
        if bad:
            what = f"{len(bad)} entries point to no record of this queue, first entry {self.first + bad[0]}"
            yield Finding("QUEUE_ENTRY", str(self.queue.directory), what, REBUILD)

    def _is_dispatched_here(self, entry: np.void, files: SegmentFiles) -> bool:
        """Whether the record names this queue as one more that it goes to (multi-dispatch, `%LMQ%` queues)."""
        offset = int(entry["physical_offset"])
        if not files.path_of(files.base_of(offset)).exists():
            return False
        with files.open(files.base_of(offset)) as segment:
            position = offset - segment.base_offset
            found = inspect(segment.view, position, offset, check_body_crc=False)
            if found.kind is not Kind.MESSAGE or found.size != int(entry["size"]):
                return False
            names = decode(segment.view, position, check_body_crc=False).properties.get(MULTI_DISPATCH, "")
        return self.topic in names.split(",")


def _add_row(rows: dict[QueueKey, Rows], message: Message) -> None:
    """Note the record if it belongs into a queue of plain entries."""
    if message.sys_flag & SysFlag.INNER_BATCH or message.sys_flag & TRANSACTION_MASK not in NOT_HALF:
        return
    row = (message.queue_offset, message.physical_offset, message.total_size, message.tags_code)
    rows.setdefault((message.topic, message.queue_id), []).append(row)


def _gaps(files: SegmentFiles, bases: list[int]) -> Iterator[Finding]:
    for base, following in pairwise(bases):
        if following != base + files.segment_bytes:
            missing = files.path_of(base + files.segment_bytes)
            yield Finding("MISSING_SEGMENT", str(missing), "the log has a gap here", "restore the file from a replica")


def _stop_findings(segment: Segment, step: Step, resume: int | None, last: bool) -> Iterator[Finding]:
    """What it means that the records ended at this step; `resume` is where they go on in the segment."""
    kind, reason = step.found.kind, step.found.reason
    where = f"{segment.path} at offset {step.physical_offset}"
    if kind is Kind.BLANK:
        if reason:
            yield Finding("BLANK_SIZE", where, reason, COMPARE)
    elif kind is Kind.INCOMPLETE:
        return  # the limit of a store in use lies inside of a record that is being received
    elif resume is not None:
        what = f"{reason or 'zeros'}; the next sound record lies at offset {segment.base_offset + resume}"
        yield Finding("DAMAGED", where, what, COMPARE)
    elif not last:
        yield Finding("DAMAGED", where, f"{reason or 'zeros'}, but the log goes on in the next segment", COMPARE)
    elif reason:
        yield Finding("TORN_TAIL", where, f"the log ends here: {reason}", CUT)
