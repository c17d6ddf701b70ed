"""Decides where a log ends, and brings log and consume queues to that end.

Implements: CommitLog.recoverNormally, recoverAbnormally, ConsumeQueue.recover (spec: store-formats, section 17)
`judge` is the decision, a pure function of what `store.recovery.log_end` found:

    zeros behind the last sound record                 END    nothing to do
    something else, nothing sound behind it            TORN   cut: zeroed on disk before anything is written there
    a sound record behind it, or below what was        ROT    raised as BitRot, nothing is changed: cutting would lose
    on disk by checkpoint or mark                             good records; a replica has the damaged one
    a sound record behind it, above what was on        TORN   cut at this first hole, with all that lies behind it: the
    disk, after a power cut (`store.recovery.last_run`)         disk took some pages and others not; none of them is
                                                                acknowledged

A slave's log may end in part of a record: that is TORN, and the master sends it again. Queues are cut to the log's end
and built up to it. If one cannot be trusted, all are built again from where the log begins. What they have of expired
records stays: a queue at rest has its number from nowhere else.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ipc.descriptors import closing_fd
from store.errors import BitRot, NotOnDisk
from store.files import checkpoint as checkpoint_file
from store.files import file_io
from store.files.checkpoint import Checkpoint
from store.files.directory import StoreDirectory
from store.files.own_files import make_own
from store.files.segment_files import OFFSET_MAX, SegmentFiles
from store.index.service import IndexService
from store.notes import log_begin
from store.queues.consume_queue import file_bytes_of, queue_directories
from store.queues.queue_set import PLAIN_QUEUES, QueueKinds
from store.recovery import last_run, log_end, lost_log
from store.recovery.index import recover_index
from store.recovery.last_run import LastRun
from store.recovery.leftovers import QueueEnd
from store.recovery.log_end import Dirty, LogEnd
from store.recovery.queues import QueueRecovery, queue_end_below

ZEROS = bytes(1 << 20)
ROTS_PASSED_MAX = 64


class Verdict(Enum):
    """The kinds of what lies at the end of the records."""

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
    segment_bytes: int = field(default=0, compare=False)  # only from `recover_read_only`; 0 without a segment


class _Trust(NamedTuple):
    """The trust in a log before it is looked at. Offsets are record boundaries but for `whole_to`."""

    floor: int  # below, everything was on disk
    whole_to: int  # a record that ends here or below came into the file as it was put
    power_cut: bool
    same_boot: bool

    @classmethod
    def of(cls, last: LastRun, checkpoint: Checkpoint, *, clean: bool, is_slave: bool) -> _Trust:
        """Return what may be trusted after the last run.

        A writer makes a record valid once it is whole, so within one boot no record is torn; a slave's receiver was
        sent parts of records.
        """
        floor = max(last.flushed_offset, checkpoint.flushed_offset or 0)
        whole_to = floor
        if last.same_boot and last.written_to is not None:
            whole_to = max(floor, last.written_to)
        elif last.same_boot and not is_slave:
            whole_to = OFFSET_MAX
        return cls(floor, whole_to, last.power_cut and not clean, last.same_boot)


def judge(end: LogEnd, flushed_floor: int, *, power_cut: bool = False) -> Verdict:
    """The decision. `flushed_floor` is a record boundary below which everything was on disk."""
    if end.offset < flushed_floor or end.displaced is not None:
        return Verdict.ROT
    if end.sound_behind is not None and not power_cut:
        return Verdict.ROT
    return Verdict.TORN if end.dirty else Verdict.END


def rot_of(end: LogEnd, flushed_floor: int) -> BitRot:
    """The error of a ROT verdict: which file, where, why, and what makes it more than a torn tail."""
    if end.sound_behind is not None:
        behind = f"a sound record follows at offset {end.sound_behind}"
    elif end.displaced is not None:
        behind = f"the file begins with a sound record of offset {end.displaced}: it is of another log, or misnamed"
    else:
        behind = (
            f"the log was on disk up to offset {flushed_floor}"
            " (according to checkpoint and mark; remove `checkpoint` and `slipstream.mark` if they are foreign)"
        )
    return BitRot(end.path, end.offset, end.reason or "nothing but zeros", behind)


def recover_read_only(
    directory: StoreDirectory | Path | str,
    segment_bytes: int | None = None,
    *,
    check_crc: bool = True,
    beyond_rot: bool = False,
    named: list[tuple[int, int]] | None = None,
) -> Recovered:
    """The same decision on a store that nobody serves, writing nothing; bit rot is in `rot`, the log ends before it.

    `named`: the log's files, where the caller has just listed them. With `beyond_rot` the end is behind all rot, for
    readers that tell of it where they come by.
    Raises NotAStore, LogMissing, SegmentSizeMismatch, MissingSegment.
    """
    directory = directory if isinstance(directory, StoreDirectory) else StoreDirectory(directory)
    directory.require()
    files, bases = SegmentFiles.listed(directory.commitlog, segment_bytes, named)
    lost_log.require(directory, bases)
    if not bases:
        return Recovered(0, 0, 0)
    checkpoint, clean = checkpoint_file.read(directory.checkpoint), not directory.was_aborted()
    last, checkpoint = _of_this_log(last_run.read(directory), checkpoint, clean=clean)
    trust = _Trust.of(last, checkpoint, clean=clean, is_slave=True)
    first = log_end.first_base_to_walk(files, bases, checkpoint, clean)
    find_end = _finder(files, bases, trust, check_crc, partial(queue_end_below, directory.consumequeue, None))
    first_end = find_end(log_end.first_record_to_walk(files, first, checkpoint.flushed_offset or 0))
    verdict = judge(first_end, trust.floor, power_cut=trust.power_cut)
    rot = rot_of(first_end, trust.floor) if verdict is Verdict.ROT else None
    findings = [] if verdict is Verdict.END else [_as_finding(first_end, verdict, is_copy=last.is_copy)]
    if rot is not None:
        findings = [str(rot)]
    end = _end_behind(first_end, trust, find_end) if beyond_rot else first_end.offset
    return Recovered(bases[0], end, end, {}, findings, 0, rot, first_end.records, files.segment_bytes)


def _end_behind(end: LogEnd, trust: _Trust, find_end: Callable[[int], LogEnd]) -> int:
    """The log's end behind bit rot: from one sound record on to the next damage, a bounded number of times.

    Where nothing sound follows, or too much is damaged, it is the end of what is not zero, or was on disk.
    """
    for _ in range(ROTS_PASSED_MAX):
        if judge(end, trust.floor, power_cut=trust.power_cut) is not Verdict.ROT:
            return end.offset
        if end.sound_behind is None:
            break
        end = find_end(end.sound_behind)
    return max(trust.floor, end.offset, *(part.base_offset + part.end for part in end.dirty))


def recover(
    directory: StoreDirectory,
    segment_bytes: int,
    cq_bytes: int,
    *,
    check_crc: bool = True,
    last: LastRun | None = None,
    is_slave: bool = False,
    index: IndexService | None = None,
    kinds: QueueKinds = PLAIN_QUEUES,
) -> Recovered:
    """Make the store whole, before its broker's processes start; the caller holds its lock.

    `last` is read from the directory when not given. `is_slave`: what wrote here last may have ended within a record.
    Raises LogMissing, BitRot, NotOnDisk, SegmentSizeMismatch, MissingSegment, CorruptRecord, QueueFileMismatch (of
    extensions).
    """
    clean, checkpoint = not directory.was_aborted(), checkpoint_file.read(directory.checkpoint)
    files = SegmentFiles(directory.commitlog, segment_bytes)
    files.remove_leftovers()
    file_checkpoint = checkpoint
    last, checkpoint = _of_this_log(last or last_run.read(directory), checkpoint, clean=clean)
    trust_by = partial(_Trust.of, checkpoint=checkpoint, clean=clean, is_slave=is_slave)
    trust = trust_by(_settled(last, directory, files, trust_by, clean=clean))
    queues = QueueRecovery(directory.consumequeue, file_bytes_of(cq_bytes), kinds, power_cut=trust.power_cut)
    queues.require_extensions()
    bases = files.base_offsets()
    lost_log.require(directory, bases)
    if not bases:
        queues.remove_all("the store has no commit log")
        log_begin.forget(directory.root)
        return Recovered(0, 0, 0, {}, queues.findings)
    first = log_end.first_base_to_walk(files, bases, checkpoint, clean)
    find_end = _finder(files, bases, trust, check_crc, partial(queue_end_below, queues.root, file_bytes_of(cq_bytes)))
    end = find_end(log_end.first_record_to_walk(files, first, checkpoint.flushed_offset or 0))
    verdict = judge(end, trust.floor, power_cut=trust.power_cut)
    if verdict is Verdict.ROT:
        raise rot_of(end, trust.floor)
    if findings := [_as_finding(end, verdict, is_copy=last.is_copy)] if verdict is Verdict.TORN else []:
        zero(files, end.dirty)
    _sync(files, [base for base in bases if first <= base <= end.offset])
    findings += _without_queues(directory, end.offset - bases[0])
    queues.cut(files, bases[0], end.offset, checkpoint)
    queues.build(files, bases[0], end.offset, checkpoint)
    if index is not None:
        span = bases[0], end.offset
        findings += recover_index(index, files, span, checkpoint, clean=clean, same_boot=trust.same_boot)
    if file_checkpoint is not checkpoint:  # from here on the store is no copy any more, and its checkpoint counts
        checkpoint_file.write(directory.checkpoint, file_checkpoint.as_rocketmqs()._replace(flushed_offset=bases[0]))
    log_begin.note(directory.root, bases[0])
    return Recovered(
        bases[0],
        end.offset,
        end.offset,
        queues.ends(end.offset),
        findings + queues.findings,
        sum(part.end - part.start for part in end.dirty),
        None,
        end.records,
    )


def _without_queues(directory: StoreDirectory, log_bytes: int) -> list[str]:
    """Say that a log has messages and no queue of any kind."""
    if not log_bytes or any(queue for root in directory.queue_directories() for queue in queue_directories(root)):
        return []
    return [f"{directory.consumequeue}: it has no queues beside a log of messages: all are built from the log"]


def _of_this_log(last: LastRun, checkpoint: Checkpoint, *, clean: bool) -> tuple[LastRun, Checkpoint]:
    """Return what counts of the last run.

    Nothing does in a copy that was made while a broker ran, so that all of its log is looked at.
    """
    if last.is_copy and not clean:
        return last._replace(flushed_offset=0), Checkpoint()
    return last, checkpoint


def _settled(
    last: LastRun, directory: StoreDirectory, files: SegmentFiles, trust_by: Callable[[LastRun], _Trust], *, clean: bool
) -> LastRun:
    """Return what is known of the last run once the disk was asked. Raises NotOnDisk."""
    if not clean and settle(files, files.base_offsets(), trust_by(last).floor):
        last = last.as_failed()
    if last.disk_failed:
        hear_failures(directory)
    return last


def _finder(
    files: SegmentFiles, bases: Sequence[int], trust: _Trust, check_crc: bool, queue_end: QueueEnd
) -> Callable[[int], LogEnd]:
    """`log_end.find_end` of this log, from a record on."""
    return partial(
        log_end.find_end,
        files,
        bases,
        check_crc=check_crc,
        whole_to=trust.whole_to,
        power_cut=trust.power_cut,
        queue_end=queue_end,
    )


def zero(files: SegmentFiles, dirty: Sequence[Dirty]) -> None:
    """Zeros there, on disk when this returns. The files stay: they are reserved for what comes."""
    for part in dirty:
        make_own(files.path_of(part.base_offset))
        with closing_fd(file_io.open_file(files.path_of(part.base_offset), writable=True)) as fd:
            for start in range(part.start, part.end, len(ZEROS)):
                file_io.write_at(fd, memoryview(ZEROS)[: part.end - start], start)
            file_io.sync_data(fd)


def settle(files: SegmentFiles, bases: Sequence[int], floor: int) -> bool:
    """Read everything from `floor` on from the disk again, before it is looked at. Raises NotOnDisk.

    A broker that could not flush leaves pages which the kernel calls clean although the disk never took them: they
    would pass every check, be called flushed, and be gone with the next power cut. So they are read again.
    True when the kernel lost some and had not reported it: the first fdatasync reports that, the second the disk today.
    """
    has_failed = False
    for base in bases:
        if base + files.segment_bytes <= floor:
            continue
        fd = file_io.open_file(files.path_of(base), writable=True)
        try:
            if not _is_synced(fd):
                has_failed = True
                file_io.sync_data(fd)
            file_io.drop_cached(fd, max(0, floor - base), files.segment_bytes)
        except OSError as error:
            raise NotOnDisk(str(files.path_of(base)), os.strerror(error.errno or errno.EIO)) from error
        finally:
            os.close(fd)
    return has_failed


def hear_failures(directory: StoreDirectory) -> None:
    """Have the kernel tell which pages of queues and index it lost while the disk failed, to us and not to the flusher.

    What the checkpoint does not know to be on disk is made again, so nothing of it is missed.
    """
    for root in (*directory.queue_directories(), directory.index):
        for path in filter(Path.is_file, root.rglob("*")):
            with closing_fd(file_io.open_file(path, writable=True)) as fd:
                _is_synced(fd)


def _is_synced(fd: int) -> bool:
    try:
        file_io.sync_data(fd)
    except OSError:
        return False
    return True


def _sync(files: SegmentFiles, bases: Sequence[int]) -> None:
    """Sync what was walked, which is about to be published as flushed."""
    for base in bases:
        file_io.sync_data_of(files.path_of(base))


def _as_finding(end: LogEnd, verdict: Verdict, *, is_copy: bool) -> str:
    dirty_bytes = sum(part.end - part.start for part in end.dirty)
    text = f"{end.path}: the log ends at offset {end.offset} in a {verdict.value} tail of {dirty_bytes} bytes"
    if not end.records_behind:
        return f"{text} ({end.reason}; no sound record after it)"
    last = end.dirty[-1]
    why = "are incomplete in this copy" if is_copy else "were not on disk when the machine stopped"
    later = "the original store has them" if is_copy else "no broker had reported any of it as flushed"
    return (
        f"{text} ({end.reason}): offsets {end.offset} to {last.base_offset + last.end} {why} and are cut off, with"
        f" {end.records_behind} complete records from offset {end.sound_behind} on; {later}"
    )
