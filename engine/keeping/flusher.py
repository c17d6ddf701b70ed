"""Brings the log to disk and says how far it came; the queues and the checkpoint, too, at their own pace.

Implements: FlushRealTimeService, GroupCommitService, FlushConsumeQueueService (spec: store-formats, 14, 18)
Follows:    max_physical_offset, reput_from_offset
Publishes:  flushed_offset, only after fdatasync succeeded; flush_errno; rings ack_bell
A failed fdatasync is final: the kernel may have dropped the pages, so a second one that succeeds would prove nothing.
flush_errno then stays, nothing is called flushed any more and nothing acknowledged; a restart recovers from the disk.
SYNC_FLUSH: one fdatasync answers everybody whose message is in the log by then, and waits a moment for those who were
answered by the one before (`engine.protocol.store.group_commit`).
A log whose files were deleted, moved or replaced (`engine.keeping.log_watch`) is as one that cannot be flushed.
The mark (`store.notes.flushed_mark`) follows each fdatasync and goes to disk with the next one, or when nothing more
comes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from time import monotonic_ns as disk_clock_ns  # what a flush takes; a played broker's time does not move it
from typing import NamedTuple

from engine.keeping.log_watch import FilesGone, LogWatch
from engine.protocol.store.group_commit import GroupCommit
from engine.settings.config import BrokerConfig, BrokerRole, FlushDiskType
from engine.settings.store_parts import index_of
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.failures import errno_text
from ipc import waiting
from ipc.counters import Cursor
from store.files import checkpoint as checkpoint_file
from store.files import file_io
from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles
from store.index.sync import IndexSync
from store.notes.flushed_mark import FlushedMark
from store.queues.consume_queue import file_bytes_of
from store.queues.sync import QueueSync, totals
from store.recovery.log_end import store_timestamp_ms

log = logging.getLogger("slipstream.flusher")

PAGE_BYTES = 4096
# The checkpoint also follows the log itself: what lies behind it is looked at by the next start after a crash.
NOTED_BYTES, NOTED_LEAST_MS = 256 << 20, 5000
REST_TIMES = 9  # a round over very many queues takes no more than a tenth of the time
# The mark is brought to disk by itself once the log rests, and once a second if it never does.
MARK_RESTED_MS, MARK_LATEST_MS = 100, 1000
PAGES_LOOKED_AT = 16
WATCH_MS = 500  # between two looks at the names of the log's files, at least
IDLE_MS_MAX = 1000  # ... and at most


class Pace(NamedTuple):
    """The rule of how often to flush, and how much must have changed; anything at all once per thorough interval.

    Not `timed`: a log that grows is looked at at once, and once an interval in any case.
    """

    interval_ms: int
    least_pages: int
    thorough_interval_ms: int
    timed: bool = True


class Paces(NamedTuple):
    """The paces of the log and of the queues."""

    log: Pace
    queues: Pace


class Flusher:
    """The role of the flusher."""

    name = "flusher"

    def __init__(
        self,
        counters: BrokerCounters,
        files: SegmentFiles,
        directory: StoreDirectory,
        queue_file_bytes: int,
        *,
        sync_flush: bool,
        paces: Paces,
        index: IndexSync | None = None,
        is_slave: bool = False,
    ) -> None:
        self._counters, self._files = counters, files
        self._directory, self._queue_file_bytes = directory, queue_file_bytes
        self._queues = QueueSync(directory.consumequeue, queue_file_bytes)
        self._sync_flush, self._log_pace, self._queue_pace = sync_flush, paces.log, paces.queues
        self._index = index
        self._failed = counters.flush_errno.read() != 0
        self._checkpoint = checkpoint_file.read(directory.checkpoint)
        self._noted_offset = -1  # of the checkpoint that we wrote; what recovery found is written once in any case
        self._log_looked_ms = self._log_thorough_ms = 0
        self._queues_looked_ms = self._queues_thorough_ms = 0
        self._queues_synced_to = -1  # reput_from_offset when the queues were last looked at
        self._queues_whole_to = -1  # the same when all of them were brought to disk
        self._seen_end = counters.max_physical_offset.read()
        self._now_ms = self._rest_ms = 0
        self._began_ns = time.monotonic_ns()
        self._fd = self._fd_base = -1
        self._is_slave = is_slave
        self._group = GroupCommit() if sync_flush and not is_slave else None
        self._watch, self._watched_ms = LogWatch(directory.root, files, counters), -WATCH_MS
        self._mark = FlushedMark(directory)
        self._marked_ms = self._flushed_ms = 0

    # turns

    def do_work(self, now_ms: int) -> int:
        """Flush what is due; the bytes of log that went to disk."""
        self._now_ms, self._began_ns = now_ms, time.monotonic_ns()
        if self._failed:
            return 0
        start = self._counters.flushed_offset.read()
        self._seen_end = self._counters.max_physical_offset.read()
        if now_ms - self._watched_ms >= WATCH_MS and not self._is_where_it_was(now_ms):
            return 0
        if self._is_log_due(start, now_ms):
            if self._group is None:
                self._flush_log(self._seen_end)
            else:
                self._flush_group(self._group)
        if not self._failed and now_ms - self._queues_looked_ms >= max(self._queue_pace.interval_ms, self._rest_ms):
            self._queues_looked_ms = now_ms
            self._flush_queues(now_ms)
            self._rest_ms = REST_TIMES * (time.monotonic_ns() - self._began_ns) // waiting.NS_PER_MS
        if self._mark.is_dirty and not self._failed and now_ms >= self._mark_due_ms():
            self._sync_mark()
        return self._counters.flushed_offset.read() - start

    def _is_log_due(self, flushed: int, now_ms: int) -> bool:
        end = self._seen_end
        if end <= flushed:
            return False
        if self._flushes_at_once(self._counters.flush_at_once.read()):
            return True
        pace = self._log_pace
        if pace.timed and now_ms - self._log_looked_ms < pace.interval_ms:
            return False
        self._log_looked_ms = now_ms
        full_segment = self._files.base_of(flushed) != self._files.base_of(end)
        if now_ms - self._log_thorough_ms >= pace.thorough_interval_ms:
            self._log_thorough_ms = now_ms
            return True
        return full_segment or end // PAGE_BYTES - flushed // PAGE_BYTES >= pace.least_pages

    def _flushes_at_once(self, asked: int) -> bool:
        return self._sync_flush or (self._is_slave and asked != 0)  # `asked`: puts at its master wait (haAckFlushed)

    # the log

    def _flush_group(self, group: GroupCommit) -> None:
        """Flush what is there, and what comes with it."""
        messages = self._gathered(group)
        began_ns = disk_clock_ns()
        self._flush_log(self._seen_end)
        group.flushed(messages, self._counters.put_messages.read(), began_ns, disk_clock_ns())

    def _gathered(self, group: GroupCommit) -> int:
        """Return how many messages the log has up to `_seen_end`, after waiting for producers that were answered."""
        put, began_ns = self._counters.put_messages, disk_clock_ns()
        messages = put.read()
        goal, left_ns = group.goal(messages), group.wait_ns(began_ns)
        until_ns = began_ns + left_ns
        while messages < goal and left_ns > 0:
            waiting.await_change(self._counters.max_physical_offset, self._seen_end, left_ns / waiting.NS_PER_MS)
            self._seen_end, messages = self._counters.max_physical_offset.read(), put.read()
            left_ns = until_ns - disk_clock_ns()
        return messages

    def _flush_log(self, end: int) -> None:
        """Segment by segment, publishing after each."""
        flushed = max(self._counters.flushed_offset.read(), self._counters.min_physical_offset.read())
        while flushed < end and not self._failed:
            base = self._files.base_of(flushed)
            try:
                fd = self._descriptor_of(base)
                file_io.sync_data(fd)
                self._watch.require_name(fd, base)
            except OSError as error:
                self._fail(str(self._files.path_of(base)), error)
                return
            start, flushed = flushed, min(end, base + self._files.segment_bytes)
            if not self._move_mark(start, flushed):
                return
            waiting.add(self._counters.log_flushes, 1)
            waiting.publish(self._counters.flushed_offset, flushed)
            if not self._sync_flush:  # else each of the many would cost a turn of group_transfer, which learns nothing
                waiting.ring(self._counters.ack_bell)

    def _is_where_it_was(self, now_ms: int) -> bool:
        """Return whether the paths of the log still lead to what is written; open the segment in use for that."""
        self._watched_ms = now_ms
        counters, begin = self._counters, self._counters.min_physical_offset.read()
        in_use = self._files.base_of(self._seen_end)
        try:
            if self._fd >= 0 and self._fd_base + self._files.segment_bytes <= begin:
                self._close_descriptor()  # it may have expired
            if self._fd < 0 and begin < self._seen_end < counters.allocated_offset.read():
                self._descriptor_of(in_use)
            self._watch.require_places(self._fd, self._fd_base)
        except OSError as error:
            self._fail(str(error.filename or self._files.path_of(in_use)), error)
            return False
        return True

    # the mark

    def _move_mark(self, start: int, end: int) -> bool:
        """Note that the log is on disk up to `end`; False when that failed.

        Before what recovery could take for torn without the mark is called flushed, the mark is on disk.
        """
        if self._is_slave:  # its log ends anywhere, what is dispatched on a record's boundary
            built_to = self._counters.reput_from_offset.read()
            end = min(end, built_to)
        self._flushed_ms = self._now_ms
        try:
            self._mark.note(end)
            if not self._is_slave and self._may_seem_torn(start, end):
                self._mark.sync()
                self._marked_ms = self._now_ms
        except OSError as error:
            return self._mark_failed(error)
        return True

    def _may_seem_torn(self, start: int, end: int) -> bool:
        """Whether a page that was just written, or the last record, ends with a zero: so it looks without its end."""
        lasts = [end - 1, *range(start - start % PAGE_BYTES + PAGE_BYTES - 1, end, PAGE_BYTES)]
        if len(lasts) > PAGES_LOOKED_AT:
            return True  # so much at once that the mark's turn adds little
        return any(os.pread(self._fd, 1, at - self._fd_base) == b"\0" for at in lasts)

    def _mark_due_ms(self) -> int:
        return min(self._flushed_ms + MARK_RESTED_MS, self._marked_ms + MARK_LATEST_MS)

    def _sync_mark(self) -> None:
        self._marked_ms = self._now_ms
        try:
            self._mark.sync()
        except OSError as error:
            self._mark_failed(error)

    def _mark_failed(self, error: OSError) -> bool:
        """Without room (a file system that writes to new places) the mark says too little; else the disk is bad."""
        if error.errno in file_io.NO_ROOM:
            log.warning("%s: not written (%s); will retry", self._directory.mark, error.strerror)
            return True
        self._fail(str(self._directory.mark), error)
        return False

    def _descriptor_of(self, base: int) -> int:
        """Return the segment's descriptor, kept open while it is current: only open ones see write-back errors."""
        if self._fd_base != base:
            self._close_descriptor()
            self._fd = file_io.open_file(self._files.path_of(base), writable=True)
            self._fd_base = base
        return self._fd

    def _close_descriptor(self) -> None:
        fd, self._fd, self._fd_base = self._fd, -1, -1
        if fd >= 0:
            os.close(fd)

    def _fail(self, path: str, error: OSError) -> None:
        self._failed = True
        number = error.errno or -1
        waiting.publish(self._counters.flush_errno, number)
        waiting.ring(self._counters.ack_bell)
        with contextlib.suppress(OSError):  # then the next start believes the cache, as far as this boot's goes
            self._mark.disown(self._counters.flushed_offset.read())
        why = error.strerror if isinstance(error, FilesGone) else errno_text(number) if number > 0 else error
        log.critical(
            "%s: cannot be flushed to disk (%s); messages above offset %d may be lost. No message is acknowledged any"
            " more: check the disk and its files, then restart the broker, which recovers what is on disk",
            path,
            why,
            self._counters.flushed_offset.read(),
        )

    # queues and checkpoint

    def _flush_queues(self, now_ms: int) -> None:
        """Flush the queues if any grew; when it is due, thoroughly and with the checkpoint."""
        built_to = self._counters.reput_from_offset.read()
        waited_ms = now_ms - self._queues_thorough_ms
        thorough = waited_ms >= self._queue_pace.thorough_interval_ms
        if built_to - self._noted_offset >= NOTED_BYTES and waited_ms >= NOTED_LEAST_MS:
            thorough = True
        if built_to == self._queues_synced_to and not thorough:
            return
        try:
            if built_to != self._queues_whole_to:  # else nothing was built since: no need to look at very many queues
                self._queues.sync(0 if thorough else self._queue_pace.least_pages, self._flush_waiting)
            self._queues_synced_to = built_to
            if thorough:
                self._queues_whole_to = built_to
            self._note_full_index_file()
            if thorough:
                self._queues_thorough_ms = now_ms
                self._write_checkpoint(built_to)
        except FileNotFoundError as gone:
            log.info("%s: expired before it was flushed; the next round checks again", gone.filename)
            self._queues_synced_to = -1
        except OSError as error:
            self._fail(str(self._directory.consumequeue), error)

    def _flush_waiting(self) -> None:
        """Puts that wait for the disk do not wait for the queues, nor does the log wait for much longer than else."""
        now_ms = self._now_ms + (time.monotonic_ns() - self._began_ns) // waiting.NS_PER_MS
        waiting.note(self._counters.heartbeats[self.name], now_ms)
        self._seen_end = self._counters.max_physical_offset.read()
        if not self._failed and self._is_log_due(self._counters.flushed_offset.read(), now_ms):
            self._flush_log(self._seen_end)

    def _save(self, checkpoint: checkpoint_file.Checkpoint) -> bool:
        """False when there is no room for it: nothing is lost, only the next start walks more of the log."""
        try:
            checkpoint_file.write(self._directory.checkpoint, checkpoint)
        except OSError as error:
            if error.errno not in file_io.NO_ROOM:
                raise
            log.warning("%s: not written (%s); will retry", self._directory.checkpoint, error.strerror)
            return False
        return True

    def _note_full_index_file(self) -> None:
        """Like RocketMQ, sync an index file that has become full, and put its end into the checkpoint."""
        noted = self._checkpoint if self._index is None else self._index.sync_full(self._checkpoint)
        if noted is not self._checkpoint:
            self._checkpoint = noted
            if noted.flushed_offset is not None:  # until the checkpoint is Slipstream's, the mark counts by these times
                self._save(noted)

    def _write_checkpoint(self, built_to: int) -> None:
        """Note that log and queues are on disk up to `built_to`, a record boundary; the queues were just synced."""
        if self._noted_offset == built_to:
            return
        self._flush_log(max(self._counters.flushed_offset.read(), built_to))
        if self._failed:
            return
        held = totals(self._directory.consumequeue, self._queue_file_bytes, built_to, self._flush_waiting)
        stored_ms = self._checkpoint.physic_msg_timestamp_ms
        if held.last_physical_offset is not None:
            stored_ms = store_timestamp_ms(self._files, held.last_physical_offset) or stored_ms
        self._checkpoint = self._checkpoint._replace(
            physic_msg_timestamp_ms=stored_ms,
            logics_msg_timestamp_ms=stored_ms,
            flushed_offset=built_to,
            queues=held.queues,
            entries=held.entries,
        )
        if self._index is not None:
            self._checkpoint = self._index.sync(self._checkpoint, built_to)
            whole_ms = min(stored_ms, self._index.whole_until_ms(self._checkpoint, stored_ms))
            self._checkpoint = self._checkpoint._replace(logics_msg_timestamp_ms=whole_ms)
        if self._save(self._checkpoint):
            self._noted_offset = built_to

    # waiting

    def idle(self, timeout_ms: int) -> None:
        """Sleep until the next timer; with SYNC_FLUSH, or not timed, also until the log grows."""
        waiting.await_change(*self.awaited(timeout_ms))

    def awaited(self, timeout_ms: int) -> tuple[Cursor, int, int]:
        """Return the word whose change ends the sleep, what was seen of it, and how many ms it lasts at most."""
        timeout_ms = min(timeout_ms, IDLE_MS_MAX)
        if self._mark.is_dirty and not self._failed:
            timeout_ms = min(timeout_ms, max(1, self._mark_due_ms() - self._now_ms))
        asked = self._counters.flush_at_once.read()
        if self._flushes_at_once(asked) and not self._failed:
            return self._counters.max_physical_offset, self._seen_end, timeout_ms
        dirty = not self._failed and self._counters.max_physical_offset.read() > self._counters.flushed_offset.read()
        until_due_ms = self._log_looked_ms + self._log_pace.interval_ms - self._now_ms
        timeout_ms = min(timeout_ms, max(1, until_due_ms)) if dirty else timeout_ms
        if self._log_pace.timed or self._failed:
            return self._counters.flush_at_once, asked, timeout_ms  # a signal ends it, too
        return self._counters.max_physical_offset, self._seen_end, timeout_ms

    def close(self) -> None:
        """Everything to disk, and the checkpoint: the end of a clean stop."""
        built_to = self._counters.reput_from_offset.read()
        try:
            if not self._failed and self._is_where_it_was(self._now_ms):
                self._flush_log(self._counters.max_physical_offset.read())
            if not self._failed:
                self._queues.sync(0, self._flush_waiting)
                self._write_checkpoint(built_to)
                self._mark.sync()
        except OSError as error:
            self._fail(str(self._directory.consumequeue), error)
        finally:
            self._close_descriptor()
            self._mark.close()
            self._queues.close()


def open_role(config: BrokerConfig, counters: BrokerCounters) -> Flusher:
    """The flusher of a store."""
    index = index_of(config)
    log_pace = Pace(
        config.flush_interval_commit_log_ms,
        config.flush_commit_log_least_pages,
        config.flush_commit_log_thorough_interval_ms,
        config.flush_commit_log_timed,
    )
    queue_pace = Pace(
        config.flush_interval_consume_queue_ms,
        config.flush_consume_queue_least_pages,
        config.flush_consume_queue_thorough_interval_ms,
    )
    return Flusher(
        counters,
        SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes),
        StoreDirectory(config.store_path_root_dir, config.store_path_commit_log),
        file_bytes_of(config.mapped_file_size_consume_queue_bytes),
        sync_flush=config.flush_disk_type is FlushDiskType.SYNC_FLUSH,
        paces=Paces(log_pace, queue_pace),
        index=IndexSync(index) if index is not None else None,
        is_slave=config.broker_role is BrokerRole.SLAVE,
    )
