"""Follows the log and builds the consume queues and the index; counts what it passes, topic by topic.

Implements: ReputMessageService (spec: store-formats, section 20)
Follows:    max_physical_offset; min_physical_offset when the log begins above our cursor
Publishes:  reput_from_offset: every record below it is in its queue, and its keys in the index
A killed dispatcher starts at its cursor; what it had built above it is written again, the same bytes. The index, where
a record put twice would be found twice, is cut to the cursor first.
On a slave the log may end in part of a record: it waits for the rest.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from engine.board.cursors import Board
from engine.board.topic_table import TopicTable
from engine.settings.config import BrokerConfig
from engine.settings.store_parts import index_of, kinds_of
from ipc import waiting
from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles
from store.queues.consume_queue import file_bytes_of
from store.recovery.dispatch import Dispatcher as QueueBuilder
from store.recovery.log_end import store_timestamp_ms

log = logging.getLogger("slipstream.dispatcher")

NAP_MS = 5  # between two looks (RocketMQ's is 1): a wake-up costs more than a trickle of records
AWAKE_MS = 50  # after this long without work: sleep until the log grows, which costs its writer a system call


class Dispatcher:
    """The role of the dispatcher."""

    name = "dispatcher"

    def __init__(self, board: Board, builder: QueueBuilder) -> None:
        self._board, self._builder = board, builder
        self._end = board.max_physical_offset.read()
        self._worked_at_ms = self._now_ms = 0

    def do_work(self, now_ms: int) -> int:
        """One batch into the queues; the bytes of log it covers."""
        self._now_ms = now_ms
        cursor = self._board.reput_from_offset
        self._end = self._board.max_physical_offset.read()
        start = cursor.read()
        begin = max(start, self._board.min_physical_offset.read())
        if begin >= self._end:
            return 0
        if 0 < start < begin:
            log.warning("the log from %d to %d expired before it was dispatched: the queues lack it", start, begin)
            self._builder.skip_to(begin)
        try:
            reached = self._builder.dispatch_batch(begin, self._end)
        except FileNotFoundError:
            if self._board.min_physical_offset.read() <= begin:
                raise
            return 1  # expired since: the next turn begins where the log does now
        for finding in self._builder.findings:
            log.warning("%s", finding)
        self._builder.findings.clear()
        if reached == start:
            return 0
        waiting.publish(cursor, reached)
        self._worked_at_ms = now_ms
        return reached - start

    def idle(self, timeout_ms: int) -> None:
        """Nap while the log is growing, sleep on its end when it is not."""
        if self._now_ms - self._worked_at_ms < AWAKE_MS:
            own = self._board.reput_from_offset
            waiting.await_change(own, own.read(), min(NAP_MS, timeout_ms))
        else:
            waiting.await_change(self._board.max_physical_offset, self._end, timeout_ms)

    def close(self) -> None:
        """Unmap the segment; what is built is in the files."""
        self._builder.close()


def open_role(config: BrokerConfig, board: Board, regions: Path) -> Dispatcher:
    """The dispatcher of a store; `regions` is the region directory."""
    files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
    directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
    file_bytes = file_bytes_of(config.mapped_file_size_consume_queue_bytes)
    index = index_of(config)
    if index is not None:
        index.cut(board.reput_from_offset.read(), partial(store_timestamp_ms, files))
    topics = TopicTable.attach(regions, writable=True)
    builder = QueueBuilder(
        files, directory.consumequeue, file_bytes, index=index, on_rows=topics.put, kinds=kinds_of(config)
    )
    return Dispatcher(board, builder)
