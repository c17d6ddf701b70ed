"""Follows the log and builds the consume queues and the index; counts what it passes, topic by topic.

Implements: ReputMessageService (spec: store-formats, section 20)
Follows:    max_physical_offset; min_physical_offset when the log begins above our cursor
Publishes:  reput_from_offset: every record below it is in its queue, and its keys in the index; before that, in
            queue_ends, where each queue ends; dispatch_errno
A killed dispatcher starts at its cursor; what it had built above it is written again, the same bytes. The index, where
a record put twice would be found twice, is cut to the cursor first. So does one that found no room for a file or a
part of one, each second until there is some: a batch that was not finished is begun again, from what the files hold.
On a slave the log may end in part of a record: it waits for the rest.
"""

from __future__ import annotations

import gc
import logging
import os
from pathlib import Path

import numpy as np

from engine.keeping import dispatch_kernel
from engine.keeping.dispatch_kernel import Cursors, Pace, Why
from engine.net.rare_lines import RareLines
from engine.settings.config import BrokerConfig
from engine.settings.store_parts import index_of, kinds_of
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.queue_ends import QueueEnds
from engine.shared_memory.topic_table import TopicTable
from ipc import waiting
from store.files import file_io
from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles
from store.queues.consume_queue import file_bytes_of
from store.queues.queue_set import Building
from store.recovery.dispatch import Dispatcher as QueueBuilder

log = logging.getLogger("slipstream.dispatcher")

OPEN_FILES_MAX = 512  # of queues, in this process
SETTLED_AT_ONCE = 1000  # queues: what is kept of them stays, and a collection that looked at 100,000 would take 0.3 s
RETRY_MS = 1000  # while there is no room
ROWS_MAX = 4096  # records of a turn, which is to be short


class Dispatcher:
    """The role of the dispatcher."""

    name = "dispatcher"

    def __init__(self, counters: BrokerCounters, builder: QueueBuilder, topics: TopicTable | None = None) -> None:
        """`topics` are counted by the builder, too."""
        self._counters, self._builder, self._topics = counters, builder, topics
        self._end = counters.max_physical_offset.read()
        self._settled = 0  # of the queues: the collector does not look at them any more
        self._is_taken = False  # `follow` left a batch to be finished
        self._is_begun = False  # the builder goes on at the cursor
        self._now_ms = self._retry_at_ms = 0
        self._findings: dict[str, None] = {}  # of the batch, which may be tried again
        self._rare = RareLines(log)
        self._pace = np.zeros(len(Pace), np.int64)
        end, beginning, reput = counters.max_physical_offset, counters.min_physical_offset, counters.reput_from_offset
        self._cursors = Cursors(end.words, int(end.index), int(beginning.index), int(reput.index))

    def do_work(self, now_ms: int) -> int:
        """Dispatch one batch into the queues, unless there was no room just now; return the log bytes covered."""
        self._now_ms = now_ms
        if now_ms < self._retry_at_ms:
            return 0
        try:
            moved = self._turn()
        except OSError as error:
            if error.errno not in file_io.NO_ROOM:
                raise
            self._await_room(error)
            return 0
        if self._counters.dispatch_errno.read():
            self._go_on()
        return moved

    def _await_room(self, error: OSError) -> None:
        """Forget what is in memory and keep what is in files, as if this process had been killed."""
        number = error.errno or -1
        self._is_begun, self._retry_at_ms = False, self._now_ms + RETRY_MS
        self._findings.update(dict.fromkeys(self._builder.findings))
        self._builder.findings.clear()
        if self._counters.dispatch_errno.read() == number:
            return
        waiting.publish(self._counters.dispatch_errno, number)
        self._rare.flush(self._now_ms)
        self._rare.tell(
            "waits for disk space",
            self._now_ms,
            "%s: %s; queues and index are behind the log from offset %d on. Free"
            " space on this file system: the broker retries each second",
            error.filename or "queues and index",
            os.strerror(number),
            self._counters.reput_from_offset.read(),
        )

    def _go_on(self) -> None:
        waiting.publish(self._counters.dispatch_errno, 0)
        if self._rare.may_tell("has room", self._now_ms):
            log.info("there is disk space: queues and index follow the log again")

    def _turn(self) -> int:
        cursor = self._counters.reput_from_offset
        if not self._is_begun:
            self._is_taken = False
            self._builder.start_over(cursor.read())
            self._is_begun, self._settled = True, 0
        self._end = self._counters.max_physical_offset.read()
        start = cursor.read()
        begin = max(start, self._counters.min_physical_offset.read())
        if begin >= self._end:
            return 0
        if start != begin:
            self._is_taken = False
        if 0 < start < begin:
            log.warning("the log from %d to %d expired before it was dispatched: the queues lack it", start, begin)
            self._builder.skip_to(begin)
        try:
            reached = self._batch(begin)
        except FileNotFoundError:
            if self._counters.min_physical_offset.read() <= begin:
                raise
            return 1  # expired since: the next turn begins where the log does now
        for finding in dict.fromkeys((*self._findings, *self._builder.findings)):
            log.warning("%s", finding)
        self._findings.clear()
        self._builder.findings.clear()
        if reached == start:
            return 0
        waiting.publish(cursor, reached)
        if self._builder.queues - self._settled >= SETTLED_AT_ONCE:
            self._settled = self._builder.queues
            gc.freeze()
        if reached == self._end:
            dispatch_kernel.rest(self._cursors.words, self._cursors.reput, self._pace, self._builder.taken)
        return reached - start

    def _batch(self, begin: int) -> int:
        if not self._is_taken:
            return self._builder.dispatch_batch(begin, self._end)
        self._is_taken = False
        return self._builder.finish(begin, self._end)

    def idle(self, timeout_ms: int) -> None:
        """Follow the log as long as all that comes is usual, or sleep until it grows."""
        cursor, cursors = self._counters.reput_from_offset, self._cursors
        if self._retry_at_ms > self._now_ms:  # nobody else moves the cursor, so that only a signal ends it
            waiting.await_change(cursor, cursor.read(), min(timeout_ms, self._retry_at_ms - self._now_ms))
            return
        timeout_ns, start = timeout_ms * waiting.NS_PER_MS, cursor.read()
        is_there = start >= self._counters.min_physical_offset.read()
        if self._topics is None or not is_there or not self._builder.is_ready(start):
            dispatch_kernel.await_growth(cursors.words, cursors.end, cursors.reput, self._end, self._pace, timeout_ns)
            return
        turn, topics = self._builder.turn(), self._topics.topics()
        why = dispatch_kernel.follow(cursors, self._pace, timeout_ns, turn, topics)
        self._is_taken = why == Why.TAKEN

    def close(self) -> None:
        """Unmap the segment; what is built is in the files."""
        self._builder.close()


def open_role(config: BrokerConfig, counters: BrokerCounters, regions: Path) -> Dispatcher:
    """The dispatcher of a store; `regions` is the region directory."""
    files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
    directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
    file_bytes = file_bytes_of(config.mapped_file_size_consume_queue_bytes)
    topics = TopicTable.attach(regions, writable=True)
    builder = QueueBuilder(
        files,
        directory.consumequeue,
        file_bytes,
        index=index_of(config),
        on_rows=topics.put,
        kinds=kinds_of(config),
        building=Building(None, QueueEnds.attach(regions, writable=True), OPEN_FILES_MAX, ROWS_MAX),
    )
    return Dispatcher(counters, builder, topics)
