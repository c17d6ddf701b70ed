"""Checks a whole store: every record, every queue entry against its record, every record against its entry.

What is wrong comes out as findings that say what, where and what to do; nothing is ever written. Segments are checked
beside each other, one on each CPU, in compiled code; findings come in the log's order. Memory is bounded by a byte for
each queue entry. The advice says what a broker repairs by itself at its next start.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from threading import local

import numpy as np
import numpy.typing as npt

from ipc.arrays import Words
from store.errors import QueueFileMismatch, StoreError
from store.files import checkpoint as checkpoint_file
from store.files import mapped_files
from store.files.directory import StoreDirectory, store_directory
from store.files.segment import file_name
from store.files.segment_files import SegmentFiles, named_files, segment_bytes_of
from store.message import delay
from store.message.multi_dispatch import JAVA_LONG
from store.message.properties import INNER_BASE, INNER_NUM
from store.message.record import Kind, Message, inspect
from store.names import BATCH_QUEUES, QUEUE_EXTENSIONS
from store.queues.batch_consume_queue import BatchConsumeQueue
from store.queues.consume_queue import queue_directories
from store.queues.extension import ADDRESS_ZERO, EXT_DTYPE, UNIT_BYTES
from store.reading.origin import batch_topics_of, line_of_store
from store.reading.walk import next_record
from store.recovery import last_run
from store.recovery.lost_log import missing
from store.tables import json_files
from store.verify import check_kernel as kernel
from store.verify import digests
from store.verify.check_words import Event, State
from store.verify.finding import COMPARE, REBUILD, Finding
from store.verify.index import IndexCheck
from store.verify.queues import CheckedQueue, Queues, QueueTable, misplaced_prefill, unmatched
from store.verify.segment import SegmentCheck, SegmentResult

# Checks batch consume queues: every unit against its record, every record of such a topic against its unit.
#
# Implements: BatchConsumeQueue (spec: store-formats, section 12)
# A record stands for many messages, so this is plain Python over records, and numpy over units.
COUNTS_END = 1 << 15
QueueKey = tuple[str, int]


class _Units:
    """One queue's units, in the log's order, and which of them a record was found for."""

    def __init__(self, queue: BatchConsumeQueue) -> None:
        self.directory = queue.directory
        self.units = queue.entries(0, queue.max_offset)
        self.offsets = self.units["physical_offset"].astype(np.int64)
        self.matched = np.zeros(len(self.units), np.bool_)

    def number_of(self, physical_offset: int) -> int | None:
        """The unit of the record there; None when none says so."""
        numbers = np.flatnonzero(self.offsets == physical_offset)
        return int(numbers[0]) if len(numbers) else None


class BatchCheck:
    """All batch queues of a store; `findings` says which could not be opened."""

    def __init__(self, root: Path) -> None:
        self._by_key: dict[QueueKey, _Units] = {}
        self.findings: list[Finding] = []
        for topic, queue_id, path in queue_directories(root / BATCH_QUEUES):
            try:
                self._by_key[topic, queue_id] = _Units(BatchConsumeQueue.open(path))
            except QueueFileMismatch as error:
                self.findings.append(Finding("QUEUE_FILES", str(path), str(error), REBUILD))
        self.queues = len(self._by_key)
        self.units = sum(len(queue.units) for queue in self._by_key.values())

    def records(self, where: Path, messages: Iterable[Message]) -> Iterator[Finding]:
        """The records of batch topics in one segment."""
        missing: dict[QueueKey, list[int]] = {}
        for message in messages:
            wanted = _unit_of(message)
            if wanted is None:
                continue
            key = message.topic, message.queue_id
            queue = self._by_key.get(key)
            number = queue.number_of(message.physical_offset) if queue is not None else None
            if queue is None or number is None:
                missing.setdefault(key, []).append(message.physical_offset)
                continue
            queue.matched[number] = True
            fields = tuple(int(queue.units[number][name]) for name in _FIELDS)
            if fields != wanted:
                what = f"unit {number} of the record at offset {message.physical_offset} has"
                what += f" {dict(zip(_FIELDS, fields, strict=True))}, it should have {wanted}"
                yield Finding("QUEUE_ENTRY", str(queue.directory), what, REBUILD)
        for (topic, queue_id), offsets in missing.items():
            what = f"{len(offsets)} records of topic {topic!r}, queue {queue_id} have no unit in their batch queue,"
            yield Finding("NOT_IN_QUEUE", str(where), f"{what} first at offset {offsets[0]}", REBUILD)

    def unmatched(self, min_offset: int, limit: int) -> Iterator[Finding]:
        """Units below `limit` that no record was found for, or that are out of order."""
        for queue in self._by_key.values():
            own = ~queue.matched & (queue.offsets >= min_offset) & (queue.offsets < limit)
            if own.any():
                what = f"{int(own.sum())} units point to no record of this queue, first unit {int(own.argmax())}"
                yield Finding("QUEUE_ENTRY", str(queue.directory), what, REBUILD)
            falls = np.diff(queue.offsets) <= 0
            if falls.any():
                what = f"unit {int(falls.argmax()) + 1} is before its predecessor in the log"
                yield Finding("QUEUE_ENTRY", str(queue.directory), what, REBUILD)


_FIELDS = ("size", "tags_code", "store_timestamp_ms", "base_offset", "count")


def _unit_of(message: Message) -> tuple[int, ...] | None:
    """Return what the unit of the record says; None when it can have none."""
    properties = message.properties
    base, count = message.queue_offset, 1
    text_count, text_base = properties.get(INNER_NUM), properties.get(INNER_BASE)
    if text_count is not None and text_base is not None and JAVA_LONG(text_count) and JAVA_LONG(text_base):
        base, count = int(text_base), int(text_count)
    if base < 0 or not 0 < count < COUNTS_END:
        return None
    return message.size, message.tags_code, message.store_timestamp_ms, base, count


# Checks consume queue extensions: the unit that an entry names has its record's tags code and store time.
#
# Implements: ConsumeQueueExt.get (spec: store-formats, section 11)
# In bulk: the entries of one segment's records at a time. A unit's bitmap cannot be checked: which filters took the
# message is known nowhere else.
LOST = (
    "rebuild the queue (`slipstream log rebuild queue STORE`): its entries then carry their tags codes themselves;"
    " filters by SQL92 are then evaluated for each message"
)


class ExtCheck:
    """The extension files of a store, mapped as they are needed."""

    def __init__(self, root: Path) -> None:
        self._root = root / QUEUE_EXTENSIONS
        self._files: dict[tuple[Path, int], npt.NDArray[np.uint8]] = {}
        self._file_bytes: dict[Path, int] = {}

    def findings(self, queue: CheckedQueue, rows: Words) -> Iterator[Finding]:
        """The events EXT of one queue: which of them name no unit, or another record's."""
        directory = self._root / queue.topic / str(queue.queue_id)
        positions = rows[:, Event.VALUE] - np.int64(ADDRESS_ZERO)
        units, there = self._units(directory, positions)
        codes = rows[:, Event.TAGS_CODE]
        right = (units["tags_code"] == codes) | (codes == kernel.ANY_TAGS)
        right &= units["store_timestamp_ms"] == rows[:, Event.STORE_TIMESTAMP]
        right &= units["size"] == UNIT_BYTES + units["bitmap_bytes"].astype(np.int64)
        for wrong, what in ((~there, "name no unit"), (there & ~right, "name a unit that is not their record's")):
            if wrong.any():
                first = rows[int(wrong.argmax())]
                text = f"{int(wrong.sum())} entries {what}, first that of the record at offset"
                text += f" {first[Event.POSITION]}, unit {int(first[Event.VALUE]) - ADDRESS_ZERO}"
                yield Finding("EXT_UNIT", str(directory), text, LOST)

    def _units(self, directory: Path, positions: Words) -> tuple[npt.NDArray[np.void], npt.NDArray[np.bool_]]:
        """The units there, and which of them lie in a file at all."""
        units = np.zeros(len(positions), EXT_DTYPE)
        there = np.zeros(len(positions), np.bool_)
        size = self._size_of(directory)
        if not size:
            return units, there
        bases = positions - positions % size
        for base in np.unique(bases).tolist():
            array = self._map(directory, base, size)
            chosen = (bases == base) & (positions - base + UNIT_BYTES <= len(array))
            if chosen.any():
                at = (positions[chosen] - base)[:, None] + np.arange(UNIT_BYTES)
                units[chosen] = array[at].reshape(-1).view(EXT_DTYPE)
                there |= chosen
        return units, there

    def _size_of(self, directory: Path) -> int:
        """The length of that queue's files, 0 without any."""
        if directory not in self._file_bytes:
            files = named_files(directory)
            self._file_bytes[directory] = files[0][1] if files else 0
        return self._file_bytes[directory]

    def _map(self, directory: Path, base: int, size: int) -> npt.NDArray[np.uint8]:
        """The bytes of a file, none when it is missing or of another length."""
        if (directory, base) not in self._files:
            path = directory / file_name(base)
            usable = 0 <= base < 1 << 62 and path.is_file() and path.stat().st_size == size
            self._files[directory, base] = mapped_files.map_array(path) if usable else np.zeros(0, np.uint8)
        return self._files[directory, base]


# Checks what lies around the log: the checkpoint, and the tables of config/*.json.
#
# Their formats have no CRCs, except Slipstream's part of the checkpoint: it is checked whether they can be read, and
# whether the checkpoint speaks of this log.
CHECKPOINT_AGAIN = (
    "remove the file while no broker runs: the next start makes it again, and looks at all of the log once"
)
CONFIG_AGAIN = "restore it from its .bak or from a replica while no broker runs, or write it again with `mqadmin`"


def checkpoint_findings(directory: StoreDirectory, max_offset: int, *, live: bool) -> Iterator[Finding]:
    """Yield what is wrong with the checkpoint; none is fine."""
    path = directory.checkpoint
    try:
        with path.open("rb") as file:
            content = file.read(checkpoint_file.FILE_BYTES + 1)
    except FileNotFoundError:
        return
    if len(content) < checkpoint_file.FILE_BYTES:
        what = f"{len(content)} bytes long instead of {checkpoint_file.FILE_BYTES}: it is ignored"
        yield Finding("CHECKPOINT", str(path), what, CHECKPOINT_AGAIN)
        return
    if reason := checkpoint_file.damage(content):
        yield Finding("CHECKPOINT", str(path), reason, CHECKPOINT_AGAIN)
        return
    checkpoint = checkpoint_file.decode(content)
    is_lower_bound = not live and not last_run.read(directory).is_copy
    if is_lower_bound and (checkpoint.flushed_offset or 0) > max_offset:
        what = f"the log was on disk up to offset {checkpoint.flushed_offset}, and now ends at {max_offset}"
        yield Finding("CHECKPOINT", str(path), what, "restore the log's end from a replica, or remove the checkpoint")


def config_findings(directory: StoreDirectory) -> Iterator[Finding]:
    """Yield a finding for each table that cannot be read."""
    for path in sorted(directory.config.glob("*.json")):
        if not path.is_file():
            continue
        try:
            problem = json_files.load(path).problem
        except StoreError as error:
            problem = str(error)
        if problem:
            yield Finding("CONFIG_FILE", str(path), " ".join(problem.split()), CONFIG_AGAIN)


THREADS_MAX = 8
CLOCK = (
    "nothing is lost, but a search by time is inexact here: the clock was set back, or another master took over;"
    " if neither is so, compare with a replica"
)
MOUNT = "mount its disk, or restore the files; to go on without them: `slipstream log repair --forget-missing {root}`"
__all__ = ["Finding", "Verification"]


class _Stopped(Exception):
    """The check was given up while a segment was looked at."""


@dataclass
class Coverage:
    """The bytes of the commit log by what would tell if one of them changed."""

    crc: int = 0  # a CRC
    structure: int = 0  # lengths, places, the queues' entries
    unprotected: int = 0  # nothing: the format has no check for them
    unused: int = 0  # they hold no data: behind a blank record or the log's end
    digest: int = 0  # of all these: bytes of segments that were compared with a digest


@dataclass
class Verification:
    """A check in progress: iterate over `findings()`, look at the counts meanwhile and afterwards.

    `end` and `dispatched` are a running broker's: the log ends at `end`, the queues may end at `dispatched`.
    """

    root: Path
    end: int | None = None
    dispatched: int | None = None
    delays_ms: tuple[int, ...] = delay.DELAYS_MS
    compare_digests: bool = True
    records: int = 0
    bytes_checked: int = 0
    bytes_total: int = 0
    entries: int = 0
    queues: int = 0
    index_entries: int = 0
    digests: int = 0
    not_yet_in_queues: int = 0
    max_offset: int = 0
    coverage: Coverage = field(default_factory=Coverage)
    on_progress: Callable[[], None] | None = None
    threads: int = 0  # 0: one for each CPU this process may use
    _directory: StoreDirectory = field(init=False)
    _batch_topics: frozenset[str] = field(init=False)
    _stop: bool = field(init=False, default=False)
    _positions: dict[int, int] = field(init=False, default_factory=dict)
    _last_time: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._directory = store_directory(self.root)
        self._batch_topics = batch_topics_of(self.root)

    def findings(self) -> Iterator[Finding]:
        """Go through the store. Raises NotAStore, SegmentSizeMismatch."""
        commitlog = self._directory.commitlog
        bases = [base for base, size in named_files(commitlog) if size]
        yield from config_findings(self._directory)
        if why := missing(self._directory, bases):
            yield Finding("LOG_MISSING", str(commitlog), why, MOUNT.format(root=self.root))
        if not bases:
            return
        files = SegmentFiles(commitlog, segment_bytes_of(commitlog))
        self.bytes_total = (self.end if self.end is not None else bases[-1] + files.segment_bytes) - bases[0]
        queues = Queues(self._directory.consumequeue, self._batch_topics)
        batches, ext = BatchCheck(self.root), ExtCheck(self.root)
        yield from (*queues.findings, *batches.findings)
        self.queues, self.entries = len(queues.all) + batches.queues, queues.entries + batches.units
        yield from _gaps(files, bases)
        for result in self._checked(files, bases, queues):
            self._count(result, files.segment_bytes)
            yield from result.findings
            yield from self._time_findings(result, files)
            yield from self._half_findings(result, files, bases)
            yield from batches.records(files.path_of(result.base_offset), result.batches)
            yield from _ext_findings(result, ext, queues)
        self.bytes_checked = self.bytes_total
        for queue in queues.all:
            yield from self._queue_findings(queue, bases[0])
        yield from batches.unmatched(bases[0], self._queue_limit())
        yield from self._index_findings(files, bases)
        yield from checkpoint_findings(self._directory, self.max_offset, live=self.end is not None)
        if self.compare_digests:
            yield from self._digest_findings(files, bases)

    # segments, side by side

    def _checked(self, files: SegmentFiles, bases: list[int], queues: Queues) -> Iterator[SegmentResult]:
        """The results in the log's order; a few segments are looked at ahead of the one that is asked for."""
        wanted = [base for base in bases if self.end is None or base < self.end]
        threads = self.threads or min(len(os.sched_getaffinity(0)), THREADS_MAX)
        own = local()

        def task(base: int) -> SegmentResult:
            if not hasattr(own, "check"):
                own.check = self._new_check(queues)
            return self._run(own.check, files, base, bases)

        if threads == 1 or len(wanted) == 1:
            yield from map(task, wanted)
            return
        with ThreadPoolExecutor(threads, "verify") as pool:
            waiting: deque[Future[SegmentResult]] = deque()
            try:
                for base in wanted:
                    waiting.append(pool.submit(task, base))
                    if len(waiting) > 2 * threads:
                        yield self._awaited(waiting.popleft())
                while waiting:
                    yield self._awaited(waiting.popleft())
            finally:
                self._stop = True
                pool.shutdown(wait=True, cancel_futures=True)

    def _awaited(self, future: Future[SegmentResult]) -> SegmentResult:
        while True:
            try:
                return future.result(timeout=0.2)
            except TimeoutError:
                self._report()

    def _new_check(self, queues: Queues) -> SegmentCheck:
        rules = line_of_store(self.root).queues
        return SegmentCheck(
            QueueTable(queues, self._batch_topics),
            queues.addresses,
            queues.matched,
            end=self.end,
            dispatched=self._queue_limit(),
            aborted=self._directory.was_aborted(),
            rules=rules,
            delays_ms=self.delays_ms,
        )

    def _run(self, check: SegmentCheck, files: SegmentFiles, base: int, bases: list[int]) -> SegmentResult:
        def on_progress(position: int) -> None:
            self._positions[base] = position
            if self._stop:
                raise _Stopped
            if self.threads == 1:
                self._report()

        with files.open(base) as segment:
            return check.run(segment, lambda: self._goes_on(files, bases[bases.index(base) + 1 :]), on_progress)

    def _report(self) -> None:
        self.bytes_checked = min(sum(self._positions.values()), self.bytes_total)
        if self.on_progress is not None:
            self.on_progress()

    def _goes_on(self, files: SegmentFiles, later: list[int]) -> bool:
        """Whether a record lies in a later segment."""
        for base in later:
            if self.end is not None and base >= self.end:
                return False
            with files.open(base) as segment:
                if next_record(segment, 0, self.end) is not None:
                    return True
        return False

    # what the results come to

    def _count(self, result: SegmentResult, segment_bytes: int) -> None:
        state = result.state
        self.records += result.records
        self.max_offset = max(self.max_offset, result.end)
        self.not_yet_in_queues += result.behind
        self._positions[result.base_offset] = segment_bytes
        sums = [int(state[word]) for word in (State.CRC_BYTES, State.STRUCTURE_BYTES, State.OPEN_BYTES)]
        coverage = self.coverage
        coverage.crc += sums[0]
        coverage.structure += sums[1] + result.blank_bytes
        coverage.unprotected += sums[2]
        coverage.unused += segment_bytes - sum(sums) - result.blank_bytes
        self._report()

    def _time_findings(self, result: SegmentResult, files: SegmentFiles) -> Iterator[Finding]:
        """Store timestamps never fall along the log."""
        if not result.records:
            return
        falls, first = int(result.state[State.TIME_FALLS]), int(result.state[State.FALL_OFFSET])
        if self._last_time is not None and int(result.state[State.FIRST_TIME]) < self._last_time:
            falls, first = falls + 1, result.base_offset
        self._last_time = int(result.state[State.LAST_TIME])
        if falls:
            where = f"{files.path_of(result.base_offset)} at offset {first}"
            what = f"{falls} records have an earlier store timestamp than the one before them, this is the first"
            yield Finding("STORE_TIME", where, what, CLOCK)

    def _half_findings(self, result: SegmentResult, files: SegmentFiles, bases: list[int]) -> Iterator[Finding]:
        """A committed message names its half message: there must be one, unless its segment is gone."""
        for commit, half in result.halves:
            base = files.base_of(half)
            if base not in bases:
                continue
            with files.open(base) as segment:
                inspection = inspect(segment.view, half - base, half, check_body_crc=False)
            if inspection.kind is not Kind.MESSAGE:
                where = f"{files.path_of(result.base_offset)} at offset {commit}"
                yield Finding("HALF_MESSAGE", where, f"no record at {half}, where its half message should be", COMPARE)

    def _queue_findings(self, queue: CheckedQueue, min_offset: int) -> Iterator[Finding]:
        where = str(queue.queue.directory)
        bad = [queue.first + number for number, _ in unmatched(queue, min_offset, self._queue_limit())]
        if bad:
            what = f"{len(bad)} entries point to no record of this queue, first entry {bad[0]}"
            yield Finding("QUEUE_ENTRY", where, what, REBUILD)
        if (wrong := misplaced_prefill(queue)) is not None:
            what = f"entry {wrong} points nowhere, which is allowed only before a queue's first message"
            yield Finding("QUEUE_ENTRY", where, what, REBUILD)

    def _index_findings(self, files: SegmentFiles, bases: list[int]) -> Iterator[Finding]:
        end, live = self.max_offset if self.end is None else self.end, self.end is not None
        check = IndexCheck(
            self._directory.index,
            files,
            bases,
            end,
            live=live,
            aborted=self._directory.was_aborted(),
            on_progress=self._report,
        )
        yield from check.findings()
        self.index_entries = check.entries

    def _digest_findings(self, files: SegmentFiles, bases: list[int]) -> Iterator[Finding]:
        for base, digest in sorted(digests.read(self.root).items()):
            if base in bases:
                with files.open(base) as segment:
                    yield from digests.compare(segment, digest, lambda _position: self._report())
                self.digests += 1
                self.coverage.digest += files.segment_bytes

    def _queue_limit(self) -> int:
        return (1 << 62) if self.dispatched is None else self.dispatched


def _ext_findings(result: SegmentResult, ext: ExtCheck, queues: Queues) -> Iterator[Finding]:
    if not result.ext_rows:
        return
    rows = np.concatenate(result.ext_rows)
    for number in np.unique(rows[:, Event.QUEUE]).tolist():
        yield from ext.findings(queues.all[number], rows[rows[:, Event.QUEUE] == number])


def _gaps(files: SegmentFiles, bases: list[int]) -> Iterator[Finding]:
    for base, following in pairwise(bases):
        if following != base + files.segment_bytes:
            missing = files.path_of(base + files.segment_bytes)
            yield Finding("MISSING_SEGMENT", str(missing), "the log has a gap here", "restore the file from a replica")
