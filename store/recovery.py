"""Decides where a log ends, and brings log and consume queues to that end.

Implements: CommitLog.recoverNormally, recoverAbnormally, ConsumeQueue.recover (spec: store-formats, section 17)
`judge` is the decision, a pure function of what `store.log_end` found:

    zeros behind the last sound record                 END    nothing to do
    something else, nothing sound behind it            TORN   cut: zeroed on disk before anything is written there
    a sound record behind it, or below what was        ROT    raised as BitRot, nothing is changed: cutting would lose
    on disk at the checkpoint                                 good records; a replica has the damaged one

A slave's log may end in part of a record: that is TORN, and the master sends it again. Queues are cut to the log's end
and built up to it; what cannot be trusted is built again from the log, in which case every queue is.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path

from store import checkpoint as checkpoint_file
from store import dispatch_kernel as kernel
from store import file_io, log_end
from store.batch_consume_queue import DIRECTORY as BATCH_DIRECTORY
from store.batch_consume_queue import BatchConsumeQueue
from store.checkpoint import Checkpoint
from store.consume_queue import ConsumeQueue, file_bytes_of, queue_directories
from store.directory import StoreDirectory
from store.dispatch import Dispatcher
from store.errors import BitRot, NotOnDisk, QueueFileMismatch, QueueGap
from store.index_recovery import recover_index
from store.index_service import IndexService
from store.log_end import LogEnd
from store.properties import java_text
from store.queue_ext import DIRECTORY as EXT_DIRECTORY
from store.queue_ext import require_length
from store.queue_set import PLAIN_QUEUES, QueueKinds
from store.queue_sync import totals
from store.segment import Segment
from store.segment_files import SegmentFiles, segment_bytes_of
from store.topics import is_lmq

ZEROS = bytes(1 << 20)
ROTS_PASSED_MAX = 64


class Verdict(Enum):
    """What lies at the end of the records."""

    END = "end"
    TORN = "torn"
    ROT = "rot"


@dataclass(frozen=True, slots=True)
class Recovered:
    """A store that can be served. Offsets are log positions."""

    min_physical_offset: int
    max_physical_offset: int
    reput_from_offset: int
    queue_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    truncated_bytes: int = 0
    rot: BitRot | None = None  # only from `recover_read_only`; `recover` raises it
    records_walked: int = 0


def judge(found: LogEnd, flushed_floor: int) -> Verdict:
    """The decision. `flushed_floor` is a record boundary below which everything was on disk."""
    if found.offset < flushed_floor or found.sound_behind is not None or found.displaced is not None:
        return Verdict.ROT
    return Verdict.TORN if found.dirty else Verdict.END


def rot_of(found: LogEnd, flushed_floor: int) -> BitRot:
    """The error of a ROT verdict: which file, where, why, and what makes it more than a torn tail."""
    if found.sound_behind is not None:
        behind = f"a sound record follows at offset {found.sound_behind}"
    elif found.displaced is not None:
        behind = f"the file begins with a sound record of offset {found.displaced}: it is another log's, or misnamed"
    else:
        behind = (
            f"the log was on disk up to offset {flushed_floor}"
            " (so its checkpoint says; remove that file if it is of another log)"
        )
    return BitRot(found.path, found.offset, found.reason or "nothing but zeros", behind)


def recover_read_only(
    directory: StoreDirectory | Path | str, segment_bytes: int | None = None, *,
    check_crc: bool = True, flushed_floor: int = 0, beyond_rot: bool = False,
) -> Recovered:  # fmt: skip
    """The same decision on a store that nobody serves, writing nothing; bit rot is in `rot`, the log ends before it.

    With `beyond_rot` the end is the one behind all rot, for readers that tell of it where they come by.
    Raises NotAStore, SegmentSizeMismatch, MissingSegment.
    """
    directory = directory if isinstance(directory, StoreDirectory) else StoreDirectory(directory)
    directory.require()
    files = SegmentFiles(directory.commitlog, segment_bytes or segment_bytes_of(directory.commitlog))
    bases = files.base_offsets()
    if not bases:
        return Recovered(0, 0, 0)
    checkpoint = checkpoint_file.read(directory.checkpoint)
    floor = max(flushed_floor, checkpoint.flushed_offset or 0)
    first = log_end.first_base_to_walk(files, bases, checkpoint, clean=not directory.was_aborted())
    queue_end = partial(_queue_end, directory.consumequeue, None)
    start = log_end.first_record_to_walk(files, first, floor)
    find_end = partial(log_end.find_end, files, bases, check_crc=check_crc, flushed_floor=floor, queue_end=queue_end)
    found = find_end(start)
    verdict = judge(found, floor)
    rot = rot_of(found, floor) if verdict is Verdict.ROT else None
    findings = [] if verdict is Verdict.END else [_told(found, verdict)]
    if rot is not None:
        findings = [str(rot)]
    end = _end_behind(found, floor, find_end) if beyond_rot else found.offset
    return Recovered(bases[0], end, end, {}, findings, 0, rot, found.records)


def _end_behind(found: LogEnd, floor: int, find_end: Callable[[int], LogEnd]) -> int:
    """The log's end behind bit rot: from one sound record on to the next damage, a bounded number of times.

    Where nothing sound follows, or too much is damaged, it is the end of what is not zero, or was on disk.
    """
    for _ in range(ROTS_PASSED_MAX):
        if judge(found, floor) is not Verdict.ROT:
            return found.offset
        if found.sound_behind is None:
            break
        found = find_end(found.sound_behind)
    return max(floor, found.offset, *(part.base_offset + part.end for part in found.dirty))


def recover(
    directory: StoreDirectory, segment_bytes: int, cq_bytes: int, *, clean: bool | None = None,
    checkpoint: Checkpoint | None = None, check_crc: bool = True, flushed_floor: int = 0,
    index: IndexService | None = None, kinds: QueueKinds = PLAIN_QUEUES, same_boot: bool = False,
) -> Recovered:  # fmt: skip
    """Make the store whole, before its broker's processes start; the caller holds its lock.

    `clean` and `checkpoint` are read from the directory when not given. `flushed_floor`, if there is a better one than
    the checkpoint's, must be a record boundary. `same_boot`: only processes died since its broker ran, not the machine,
    so everything that they wrote is there, in their order.
    Raises BitRot, NotOnDisk, SegmentSizeMismatch, MissingSegment, CorruptRecord, QueueFileMismatch (of extensions).
    """
    clean = not directory.was_aborted() if clean is None else clean
    checkpoint = checkpoint_file.read(directory.checkpoint) if checkpoint is None else checkpoint
    files = SegmentFiles(directory.commitlog, segment_bytes)
    files.remove_leftovers()
    queues = _Queues(directory.consumequeue, file_bytes_of(cq_bytes), kinds)
    queues.require_extensions()
    bases = files.base_offsets()
    if not bases:
        queues.remove_all("there is no commit log")
        if index is not None:
            index.delete(index.files())
        return Recovered(0, 0, 0, {}, queues.findings)
    first = log_end.first_base_to_walk(files, bases, checkpoint, clean)
    floor = max(flushed_floor, checkpoint.flushed_offset or 0)
    if not clean:
        settle(files, bases, floor)
    queue_end = partial(_queue_end, directory.consumequeue, file_bytes_of(cq_bytes))
    start = log_end.first_record_to_walk(files, first, floor)
    found = log_end.find_end(files, bases, start, check_crc, floor, queue_end=queue_end)
    verdict = judge(found, floor)
    if verdict is Verdict.ROT:
        raise rot_of(found, floor)
    findings = []
    if verdict is Verdict.TORN:
        findings.append(_told(found, verdict))
        cut(files, found)
    _sync(files, [base for base in bases if first <= base <= found.offset])
    queues.cut(files, found.offset)
    queues.build(files, bases[0], found.offset, checkpoint)
    if index is not None:
        findings += recover_index(
            index, files, (bases[0], found.offset), checkpoint, clean=clean, same_boot=same_boot
        )
    return Recovered(
        bases[0], found.offset, found.offset, queues.ends(found.offset), findings + queues.findings,
        sum(part.end - part.start for part in found.dirty), None, found.records,
    )  # fmt: skip


def cut(files: SegmentFiles, found: LogEnd) -> None:
    """Zero everything behind the end, on disk when this returns. The files stay: they are reserved for what comes."""
    for part in found.dirty:
        fd = file_io.open_file(files.path_of(part.base_offset), writable=True)
        try:
            for start in range(part.start, part.end, len(ZEROS)):
                file_io.write_at(fd, memoryview(ZEROS)[: part.end - start], start)
            file_io.sync_data(fd)
        finally:
            os.close(fd)


def settle(files: SegmentFiles, bases: Sequence[int], floor: int) -> None:
    """Have the disk's own word about everything from `floor` on, before it is looked at. Raises NotOnDisk.

    A broker that could not flush leaves pages which the kernel calls clean although the disk never took them: they
    would pass every check, be called flushed, and be gone with the next power cut. So they are read again.
    """
    for base in bases:
        if base + files.segment_bytes <= floor:
            continue
        fd = file_io.open_file(files.path_of(base), writable=True)
        try:
            file_io.sync_data(fd)
            file_io.drop_cached(fd, max(0, floor - base), files.segment_bytes)
        except OSError as error:
            raise NotOnDisk(str(files.path_of(base)), os.strerror(error.errno or errno.EIO)) from error
        finally:
            os.close(fd)


def _sync(files: SegmentFiles, bases: Sequence[int]) -> None:
    """What was walked is about to be published as flushed, so it has to be."""
    for base in bases:
        fd = file_io.open_file(files.path_of(base), writable=True)
        try:
            file_io.sync_data(fd)
        finally:
            os.close(fd)


def _queue_end(root: Path, file_bytes: int | None, topic: str, queue_id: int, physical_offset: int) -> int:
    """How many entries that consume queue has of records below an offset; 0 when it is not there or unsound."""
    if not topic or "/" in topic or "\0" in topic or topic in (".", ".."):
        return 0
    try:
        return ConsumeQueue.open(root / topic / str(queue_id), file_bytes).end_below(physical_offset)
    except QueueFileMismatch:
        return 0


def _told(found: LogEnd, verdict: Verdict) -> str:
    dirty_bytes = sum(part.end - part.start for part in found.dirty)
    return (
        f"{found.path}: the log ends at offset {found.offset} in a {verdict.value} tail of {dirty_bytes} bytes"
        f" ({found.reason}; nothing sound behind it)"
    )


class _Queues:
    """The consume queues of all kinds during recovery."""

    def __init__(self, root: Path, file_bytes: int, kinds: QueueKinds) -> None:
        self._root, self._file_bytes, self._kinds = root, file_bytes, kinds
        self._rebuild: str | None = None  # why all queues are to be built again
        self.findings: list[str] = []

    def _every(self) -> Iterator[tuple[str, int, ConsumeQueue]]:
        """(topic, queue id, queue) of the plain queues and of the batch queues."""
        for topic, queue_id, path in queue_directories(self._root):
            yield topic, queue_id, ConsumeQueue(path, self._file_bytes)
        for topic, queue_id, path in queue_directories(self._root.parent / BATCH_DIRECTORY):
            yield topic, queue_id, BatchConsumeQueue(path, self._kinds.batch_file_bytes)

    def require_extensions(self) -> None:
        """Raise QueueFileMismatch when files of extensions have another length than the settings say."""
        if self._kinds.ext_file_bytes:
            for _topic, _queue_id, path in queue_directories(self._root.parent / EXT_DIRECTORY):
                require_length(path, self._kinds.ext_file_bytes)

    def cut(self, files: SegmentFiles, max_physical_offset: int) -> None:
        """Cut every queue to its sound entries below the log's end."""
        for topic, queue_id, queue in self._every():
            try:
                end = queue.sound_end(max_physical_offset)
                held = queue.end_below(max_physical_offset)
                queue.truncate(end)
            except QueueFileMismatch as error:
                self._rebuild = str(error)
                continue
            if end < held:
                self._rebuild = f"{queue.directory}: entry {end} is damaged"
            elif not self._is_further(topic) and not _names_its_record(queue, end, topic, queue_id, files):
                self._rebuild = f"{queue.directory}: entry {end - 1} is not of this queue"

    def _is_further(self, name: str) -> bool:
        """Whether other topics' records may be in a queue of that name, by multi-dispatch."""
        return is_lmq(name) or self._kinds.multi_dispatch

    def build(self, files: SegmentFiles, min_offset: int, max_offset: int, checkpoint: Checkpoint) -> None:
        """Dispatch what the queues lack."""
        start = checkpoint.flushed_offset
        if start is None or not min_offset <= start <= max_offset:
            start = min_offset  # nobody has told us up to where the queues are complete: once, look at all of the log
        elif self._rebuild is None:
            held = totals(self._root, self._file_bytes, start)
            if (held.queues, held.entries) != (checkpoint.queues, checkpoint.entries):
                self._rebuild = f"{self._root}: the number of entries is not the checkpoint's"
        if self._rebuild is None:
            try:
                self._dispatch(files, start, max_offset, refuse_gaps=start > min_offset)
                return
            except QueueGap as gap:
                self._rebuild = str(gap)
        self.remove_all(self._rebuild)
        self._dispatch(files, min_offset, max_offset, refuse_gaps=False)

    def _dispatch(self, files: SegmentFiles, start: int, end: int, *, refuse_gaps: bool) -> None:
        dispatcher = Dispatcher(files, self._root, self._file_bytes, refuse_gaps=refuse_gaps, kinds=self._kinds)
        try:
            dispatcher.dispatch(start, end)
        finally:
            dispatcher.close()
        self.findings += dispatcher.findings

    def remove_all(self, because: str) -> None:
        """Remove the queues, to have them built again; multi-dispatch ones only if we build them. Extensions stay."""
        removed = 0
        for topic, _queue_id, queue in list(self._every()):
            if self._kinds.multi_dispatch or not is_lmq(topic):
                shutil.rmtree(queue.directory)
                removed += 1
        if removed:
            self.findings.append(f"{removed} consume queues are built again from the log: {because}")

    def ends(self, max_physical_offset: int) -> dict[tuple[str, int], int]:
        """The next queue offset of every queue."""
        found = {}
        for topic, queue_id, queue in self._every():
            end = queue.end_below(max_physical_offset)
            found[topic, queue_id] = queue.messages_end(end)
        return found


def _names_its_record(queue: ConsumeQueue, end: int, topic: str, queue_id: int, files: SegmentFiles) -> bool:
    """Whether the last entry points at a record of this queue with that size. True when it points nowhere."""
    entry = queue.last_entry(end) if end else None
    if entry is None:
        return True
    offset = int(entry["physical_offset"])
    path = files.path_of(files.base_of(offset))
    if not path.exists():
        return False
    with files.open(files.base_of(offset)) as segment:
        return _is_record_of(segment, offset - segment.base_offset, int(entry["size"]), topic, queue_id)


def _is_record_of(segment: Segment, position: int, size: int, topic: str, queue_id: int) -> bool:
    rows = log_end.new_rows(1)
    limit = min(position + size, segment.size_bytes)
    _, count, _ = kernel.scan(segment.array, position, limit, segment.base_offset, rows)
    if not count:
        return False
    row = rows[0]
    start = int(row[kernel.TOPIC_AT])
    found = segment.array[start : start + int(row[kernel.TOPIC_BYTES])].tobytes()
    return int(row[kernel.SIZE]) == size and int(row[kernel.QUEUE_ID]) == queue_id and java_text(found) == topic
