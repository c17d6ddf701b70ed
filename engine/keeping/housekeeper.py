"""Keeps the store inside its disk: deletes what is expired, says how full the disk is, keeps the audit.

Implements: DefaultMessageStore's timers for CleanCommitLogService and CleanConsumeQueueService; the decisions are in
engine/protocol/store/retention.py (spec: store-formats, section 22)
Follows:    segment_request_offset, max_physical_offset, flushed_offset, allocation_errno, leases, snapshots,
            the checkpoint; the words of live_settings, each time it looks for expired files
Publishes:  min_physical_offset, disk_state, disk_used_percent, running_flags, deleted_segments
Only the housekeeper moves the log's beginning, and it does so before the file is deleted: so readers, senders and the
dispatcher stop looking there first. It also sets where an empty slave's log begins, once the receiver knows it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from engine.keeping.audit_rounds import AuditRounds
from engine.keeping.empty_log import unused_before
from engine.protocol.store.retention import (
    HOUR_MS,
    Bounds,
    DiskState,
    LogCleaner,
    LogFile,
    Policy,
    Usage,
    Verdict,
    disk_state,
    expired_count,
    running_flags,
)
from engine.settings.config import BrokerConfig
from engine.shared_memory import live_settings
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from ipc.clock import monotonic_ms, wall_of
from store.compat import line_of
from store.errors import IndexFileDamaged, StoreError
from store.files import checkpoint as checkpoint_file
from store.files import file_io
from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles, stated_files
from store.notes import log_begin
from store.upkeep import expiry, leases, side_files, snapshots
from store.upkeep.audit import INDEX, QUEUE, SEGMENT

log = logging.getLogger("slipstream.housekeeper")

# RocketMQ looks each 10 s; a fast writer fills a lot of disk in that time. While nothing is written: half as often.
MEASURE_MS, MEASURE_RESTED_MS = 1000, 2000
FINDINGS_MAX = 1000
TOLD = {
    DiskState.NORMAL: "normal",
    DiskState.WARNING: "warning: files are deleted early",
    DiskState.READ_ONLY: "read-only: messages are refused (SERVICE_NOT_AVAILABLE) until there is room",
    DiskState.FULL: "full: a segment finds no room; messages are refused (SERVICE_NOT_AVAILABLE) until there is some",
}


def local_hour(wall_ms: int) -> int:
    """The hour on this machine's clock, which is what deleteWhen means."""
    return time.localtime(wall_ms / 1000).tm_hour


class Clock(NamedTuple):
    """Time of day from monotonic milliseconds: files and the audit have it, all else here is monotonic."""

    wall: Callable[[int], int] = wall_of
    hour: Callable[[int], int] = local_hour  # of a wall clock's milliseconds


CLOCK = Clock()


class Housekeeper:
    """The role of the housekeeper."""

    name = "housekeeper"

    def __init__(
        self,
        counters: BrokerCounters,
        files: SegmentFiles,
        directory: StoreDirectory,
        policy: Policy,
        now_ms: int,
        *,
        queue_interval_ms: int,
        usage: Callable[[], Usage] | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self._counters, self._files, self._directory = counters, files, directory
        self._policy = policy
        self._cleaner = LogCleaner(self._policy_now(), now_ms)
        self._queue_interval_ms, self._usage_of, self._clock = queue_interval_ms, usage or self._used, clock
        self._deletion_requests = counters.deletion_requests.read()
        self._audit = AuditRounds(counters, files, directory, clock.wall)
        self._request = counters.segment_request_offset.read()
        self._usage = Usage(-1, -1)
        self._measure_at_ms = 0
        self._measured_end = -1  # where the log ended then
        self._begin_noted = -1
        self._queue_work: Iterator[int] | None = None
        self._queue_due_ms = self._queues_clean_to = 0
        self._snapshots = snapshots.Holds()
        self._known_findings: set[str] = set()
        self._now_ms = now_ms
        self._measure(now_ms)
        self._audit.look(now_ms, self._cleaner.policy.round_interval_ms)

    def do_work(self, now_ms: int) -> int:
        """Delete one file, or the expired ones of one queue, if any is due; 0 when nothing is to be done."""
        self._now_ms = now_ms
        self._request = self._counters.segment_request_offset.read()
        self._begin_log()
        if now_ms >= self._measure_at_ms:
            self._measure(now_ms)
        if (requests := self._counters.deletion_requests.read()) != self._deletion_requests:
            self._deletion_requests = requests
            self._cleaner.ask(now_ms)
        looks = self._audit.look(now_ms, self._cleaner.policy.round_interval_ms)
        return self._clean_log(now_ms) or self._clean_queues(now_ms) or int(looks)

    def idle(self, timeout_ms: int) -> None:
        """Sleep until a timer is due, or the log goes on in another segment."""
        wait_ms = min(timeout_ms, max(0, self._measure_at_ms - self._now_ms), self._cleaner.wait_ms(self._now_ms))
        if self._queue_work is not None:
            wait_ms = min(wait_ms, max(0, self._queue_due_ms - self._now_ms))
        waiting.await_change(self._counters.segment_request_offset, self._request, max(1, wait_ms))

    def close(self) -> None:
        """The last changes into the audit."""
        beat = self._counters.heartbeats[self.name]
        self._audit.finish(lambda: waiting.note(beat, monotonic_ms()))

    # where the log begins

    def _begin_log(self) -> None:
        """A slave whose log is still empty begins where its master says, whatever was made before."""
        before = unused_before(self._counters, self._files, self._request)
        if before is None:
            return
        wanted = self._files.base_of(self._request)
        self._note_begin(wanted)
        waiting.publish(self._counters.min_physical_offset, wanted)
        for base in before:
            self._remove_segment(base, f"unused: the log of this slave begins at {wanted}, as its master says")

    # the disk

    def _used(self) -> Usage:
        return Usage(
            file_io.used_percent(self._directory.commitlog), file_io.used_percent(self._directory.consumequeue)
        )

    def _has_no_room(self) -> bool:
        return self._counters.allocation_errno.read() in file_io.NO_ROOM

    def _measure(self, now_ms: int) -> None:
        """Measure and publish how full the disk is; log a change of state."""
        self._usage, counters = self._usage_of(), self._counters
        before, end = DiskState(counters.disk_state.read()), counters.max_physical_offset.read()
        rests = end == self._measured_end and before is DiskState.NORMAL
        self._measure_at_ms, self._measured_end = now_ms + (MEASURE_RESTED_MS if rests else MEASURE_MS), end
        waits = self._request >= counters.allocated_offset.read()
        policy = self._cleaner.policy
        state = disk_state(before, self._usage, policy, no_room=self._has_no_room(), writer_waits=waits)
        waiting.note(counters.disk_used_percent, max(self._usage))
        if state is before:
            return
        waiting.publish(counters.running_flags, running_flags(state))
        waiting.publish(counters.disk_state, state)
        level = logging.WARNING if state > DiskState.NORMAL else logging.INFO
        log.log(
            level,
            "%s: used to %d %%, %s: used to %d %%: the disk is %s",
            self._directory.commitlog,
            self._usage.commit_log,
            self._directory.consumequeue,
            self._usage.queues,
            TOLD[state],
        )

    # the commit log

    def _clean_log(self, now_ms: int) -> int:
        if self._cleaner.wait_ms(now_ms):
            return 0
        self._cleaner.policy = self._policy_now().clamped()
        behind_ms = self._clock.wall(now_ms) - now_ms
        held = leases.look(self._directory.root, now_ms)
        kept = self._snapshots.look(self._directory.root, now_ms + behind_ms)
        self._tell_once([*held.findings, *kept.findings])
        files = [
            LogFile(base, stat.st_size, stat.st_mtime_ns // 1_000_000 - behind_ms)
            for base, stat in stated_files(self._files.directory)
        ]
        begin = self._counters.min_physical_offset.read()
        bounds = Bounds(begin, self._deletable_end(), held.from_offset, kept.from_offset)
        hour = self._clock.hour(now_ms + behind_ms)
        verdict = self._cleaner.next(now_ms, hour, self._usage, files, bounds, self._has_no_room())
        if verdict is not None:
            self._carry_out(verdict, now_ms)
        elif not self._cleaner.is_in_round and files and files[0][0] > self._queues_clean_to:
            self._queue_work = self._queue_work or self._expire_queues(files[0][0])
        return int(verdict is not None and verdict.delete)

    def _policy_now(self) -> Policy:
        """Return the policy with what an administrator has set since the broker read its file."""
        wanted = live_settings.retention(self._counters)
        return self._policy._replace(
            delete_when_hours=wanted.delete_when_hours,
            reserved_ms=wanted.reserved_hours * HOUR_MS,
            max_used_percent=wanted.max_used_percent,
        )

    def _deletable_end(self) -> int:
        """The file that is written stays, what is not on disk yet, and, as long as there is room, what the queues on
        disk lack: after a power cut the log would not have it for them, and a queue would begin again at 0."""
        counters = self._counters
        begin, end = counters.min_physical_offset.read(), counters.max_physical_offset.read()
        written, on_disk = self._files.base_of(end - 1 if end > begin else end), counters.flushed_offset.read()
        if not self._has_no_room():
            on_disk = min(on_disk, checkpoint_file.read(self._directory.checkpoint).flushed_offset or 0)
        return min(written, self._files.base_of(on_disk))

    def _carry_out(self, verdict: Verdict, now_ms: int) -> None:
        counters = self._counters
        if verdict.min_physical_offset > counters.min_physical_offset.read():
            waiting.publish(counters.min_physical_offset, verdict.min_physical_offset)
        path = self._files.path_of(verdict.base_offset)
        if not verdict.delete:
            log.info("%s: expired, but %s", path, verdict.reason)
            self._note("keep" if verdict.kept else "condemn", SEGMENT, path, verdict.reason)
            return
        try:
            self._note_begin(verdict.min_physical_offset)
            self._remove_segment(verdict.base_offset, verdict.reason, forced=verdict.forced)
        except OSError as error:
            log.error("%s: expired, but cannot be deleted (%s); will retry", path, error.strerror)
            self._note("delete_failed", SEGMENT, path, error.strerror or str(error))
            self._cleaner.hung(verdict.base_offset, now_ms)
            return
        waiting.add(counters.deleted_segments, 1)
        self._measure_at_ms = 0

    def _note_begin(self, offset: int) -> None:
        """Before a file below that offset is deleted."""
        if offset > self._begin_noted:
            log_begin.note(self._directory.root, offset)
            self._begin_noted = offset

    def _remove_segment(self, base: int, reason: str, **facts: object) -> None:
        path = self._files.path_of(base)
        self._note("delete", SEGMENT, path, reason, **facts)
        self._audit.forget(path)
        self._files.remove(base)
        try:
            side_files.remove(self._directory.root, base)
        except (StoreError, OSError) as error:
            self._tell_once([f"{error}; side files of the segment at {base} are kept"])

    # queues and index

    def _clean_queues(self, now_ms: int) -> int:
        if self._queue_work is None or now_ms < self._queue_due_ms:
            return 0
        deleted = next(self._queue_work, None)
        if deleted is None:
            self._queue_work = None
            return 0
        if deleted:
            self._queue_due_ms = now_ms + self._queue_interval_ms
        return 1

    def _expire_queues(self, begin: int) -> Iterator[int]:
        """Delete expired files of one queue at a time, and yield how many; the log begins at `begin`."""
        for directory, entry_bytes in expiry.queues(self._directory.root):
            count = self._expire(QUEUE, directory, list(expiry.last_offsets(directory, entry_bytes)), begin)
            for path in expiry.expired_ext_files(directory, begin):
                self._remove(QUEUE, path, f"its units belong to entries below the log's first byte {begin}")
            yield count
        yield self._expire_index(begin)
        self._queues_clean_to = begin

    def _expire_index(self, begin: int) -> int:
        directory = self._directory.index
        try:
            ends = list(expiry.index_ends(directory))
        except IndexFileDamaged as error:
            self._tell_once([f"{error}; no index file was deleted"])
            return 0
        return self._expire(INDEX, directory, ends, begin)

    def _expire(self, kind: str, directory: Path, ends: list[tuple[Path, int]], begin: int) -> int:
        """Delete the oldest of those files as far as their last records lie below the log's first byte; how many."""
        count = expired_count((offset for _path, offset in ends), begin)
        for path, offset in ends[:count]:
            self._remove(kind, path, f"its last record lies at {offset}, below the log's first byte {begin}")
        if count:
            file_io.sync_directory(directory)
        return count

    def _remove(self, kind: str, path: Path, reason: str) -> None:
        self._note("delete", kind, path, reason)
        self._audit.forget(path)
        file_io.unlink(path)

    # what is reported

    def _note(self, event: str, kind: str, path: Path | None, reason: str, **facts: object) -> None:
        self._audit.note(self._now_ms, event, kind, path, reason, **facts)

    def _tell_once(self, findings: list[str]) -> None:
        news = set(findings) - self._known_findings
        for finding in sorted(news):
            log.warning("%s", finding)
        self._known_findings = self._known_findings | news if len(self._known_findings) < FINDINGS_MAX else news


def policy_of(config: BrokerConfig) -> Policy:
    """The configuration's part in what is deleted when."""
    return Policy(
        rules=line_of(config.compat).retention,
        delete_when_hours=config.delete_when_hours,
        reserved_ms=config.file_reserved_hours * HOUR_MS,
        max_used_percent=config.disk_max_used_space_percent,
        warning_percent=config.disk_space_warning_level_percent,
        forcibly_percent=config.disk_space_clean_forcibly_percent,
        clean_forcibly=config.clean_file_forcibly_enable,
        batch_max=config.delete_file_batch_max,
        round_interval_ms=config.clean_resource_interval_ms,
        file_interval_ms=config.delete_commit_log_files_interval_ms,
        destroy_forcibly_ms=config.destroy_mapped_file_interval_forcibly_ms,
        redelete_ms=config.redelete_hanged_file_interval_ms,
    )


def open_role(config: BrokerConfig, counters: BrokerCounters) -> Housekeeper:
    """The housekeeper of a store."""
    files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
    directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
    return Housekeeper(
        counters,
        files,
        directory,
        policy_of(config),
        monotonic_ms(),
        queue_interval_ms=config.delete_consume_queue_files_interval_ms,
    )
