"""Follows the log and builds the consume queues and the index; counts what it passes, topic by topic.

Implements: ReputMessageService (spec: store-formats, section 20)
Follows:    max_physical_offset; min_physical_offset when the log begins above our cursor
Publishes:  reput_from_offset: every record below it is in its queue, and its keys in the index; before that, in
            queue_ends, where each queue ends
A killed dispatcher starts at its cursor; what it had built above it is written again, the same bytes. The index, where
a record put twice would be found twice, is cut to the cursor first.
On a slave the log may end in part of a record: it waits for the rest.
"""

from __future__ import annotations

import gc
import logging
from functools import partial
from pathlib import Path

import numpy as np

from engine.board.cursors import Board
from engine.board.queue_ends import QueueEnds
from engine.board.topic_table import TopicTable
from engine.keeping import dispatch_kernel
from engine.keeping.dispatch_kernel import Pace, Why
from engine.settings.config import BrokerConfig
from engine.settings.store_parts import index_of, kinds_of
from ipc import waiting
from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles
from store.queues.consume_queue import file_bytes_of
from store.recovery.dispatch import Dispatcher as QueueBuilder
from store.recovery.log_end import store_timestamp_ms

log = logging.getLogger("slipstream.dispatcher")

OPEN_FILES_MAX = 512  # of queues, in this process
SETTLED_AT_ONCE = 1000  # queues: what is kept of them stays, and a collection that looked at 100,000 would take 0.3 s
ROWS_MAX = 4096  # records of a turn, which is to be short


class Dispatcher:
    """The role of the dispatcher."""

    name = "dispatcher"

    def __init__(self, board: Board, builder: QueueBuilder, topics: TopicTable | None = None) -> None:
        """`topics` are counted by the builder, too."""
        self._board, self._builder, self._topics = board, builder, topics
        self._end = board.max_physical_offset.read()
        self._settled = 0  # of the queues: the collector does not look at them any more
        self._is_taken = False  # `follow` left a batch to be finished
        self._pace = np.zeros(len(Pace), np.int64)
        beginning, reput = board.min_physical_offset, board.reput_from_offset
        self._words = board.max_physical_offset.words
        self._places = int(board.max_physical_offset.index), int(beginning.index), int(reput.index)

    def do_work(self, _now_ms: int) -> int:
        """One batch into the queues; the bytes of log it covers."""
        cursor = self._board.reput_from_offset
        self._end = self._board.max_physical_offset.read()
        start = cursor.read()
        begin = max(start, self._board.min_physical_offset.read())
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
            if self._board.min_physical_offset.read() <= begin:
                raise
            return 1  # expired since: the next turn begins where the log does now
        for finding in self._builder.findings:
            log.warning("%s", finding)
        self._builder.findings.clear()
        if reached == start:
            return 0
        waiting.publish(cursor, reached)
        if self._builder.queues - self._settled >= SETTLED_AT_ONCE:
            self._settled = self._builder.queues
            gc.freeze()
        if reached == self._end:
            dispatch_kernel.rest(self._words, self._places[2], self._pace, self._builder.taken)
        return reached - start

    def _batch(self, begin: int) -> int:
        if not self._is_taken:
            return self._builder.dispatch_batch(begin, self._end)
        self._is_taken = False
        return self._builder.finish(begin, self._end)

    def idle(self, timeout_ms: int) -> None:
        """Follow the log as long as all that comes is usual, or sleep until it grows."""
        timeout_ns = timeout_ms * waiting.NS_PER_MS
        end, beginning, reput = self._places
        start = self._board.reput_from_offset.read()
        is_there = start >= self._board.min_physical_offset.read()
        if self._topics is None or not is_there or not self._builder.is_ready(start):
            dispatch_kernel.await_growth(self._words, end, reput, self._end, self._pace, timeout_ns)
            return
        why = dispatch_kernel.follow(
            self._words, end, beginning, reput, self._pace, timeout_ns, *self._builder.turn_words(),
            *self._topics.kernel_words(),
        )  # fmt: skip
        self._is_taken = why == Why.TAKEN

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
        files, directory.consumequeue, file_bytes, index=index, on_rows=topics.put, kinds=kinds_of(config),
        ends=QueueEnds.attach(regions, writable=True), open_max=OPEN_FILES_MAX, rows_max=ROWS_MAX,
    )  # fmt: skip
    return Dispatcher(board, builder, topics)
