"""Checks a whole store: every record, every queue entry against its record, every record against its entry.

What is wrong comes out as findings that say what, where and what to do; nothing is ever written. Segments are checked
beside each other, one on each CPU, in compiled code; findings come in the log's order. Memory is bounded by a byte for
each queue entry. The advice says what a broker repairs by itself at its next start.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from threading import local

import numpy as np

from store.files.directory import StoreDirectory, store_directory
from store.files.segment_files import SegmentFiles, named_files, segment_bytes_of
from store.message import delay
from store.message.record import Kind, inspect
from store.reading.origin import batch_topics_of, line_of_store
from store.reading.walk import next_record
from store.recovery.lost_log import missing
from store.verify import digests
from store.verify.batches import BatchCheck
from store.verify.check_words import Event, State
from store.verify.extensions import ExtCheck
from store.verify.files import checkpoint_findings, config_findings
from store.verify.finding import COMPARE, REBUILD, Finding
from store.verify.index import IndexCheck
from store.verify.queues import CheckedQueue, Queues, QueueTable, misplaced_prefill, unmatched
from store.verify.segment import SegmentCheck, SegmentResult

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
