"""The log and its queues as a front reads them: in place, up to where the dispatcher says that queues end.

Implements: DefaultMessageStore.getMessage around its loop, getMaxOffsetInQueue, getMinOffsetInQueue
A queue that never had a message has no slot here, where RocketMQ makes a consume queue when it is asked for: who waits
for one hears when it has its first.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.front.connections.log_body import LogFile, LogRange
from engine.front.pulls.pull_words import AT_FIRST, FILE_WORDS, NO_LOG_FILE, FileWord
from engine.protocol.pulling.decision import Catch, QueueExtent, looked, outside, scan_before, without_file
from engine.protocol.pulling.select_kernel import RANGES_MAX, Limit, RangeColumn, Taken, any_matched, select
from engine.protocol.pulling.subscription import TagFilter
from engine.settings.config import BrokerConfig
from engine.settings.store_parts import kinds_of
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.queue_ends import NO_SLOT, QueueEnds
from ipc.arrays import Bytes, Words
from store.compat import line_of
from store.errors import SegmentRemoved
from store.files.segment_files import SegmentFiles
from store.message.unit import Unit
from store.names import BATCH_QUEUES, CONSUME_QUEUES, QUEUE_EXTENSIONS
from store.queues.batch_consume_queue import UNIT_BYTES
from store.queues.consume_queue import ENTRY_BYTES, file_bytes_of
from store.reading.queue_reader import NO_FILE, FileMaps, QueueReader

FILES_MAX = 64  # of the log, open
READERS_MAX = 50_000
ROWS_MAX = 1 << 15
BODY_BYTES_MAX = 15 << 20  # a frame has 16 MiB at most

Queue = tuple[str, int]
NO_UNITS: Bytes = np.empty(0, np.uint8)


class QueueFile(NamedTuple):
    """A queue as compiled code needs it: its end, its minimum for that beginning of the log, one of its files.

    `slot`: NO_SLOT of one that never had a message."""

    slot: int
    begins: int
    minimum: int
    first: int  # the queue offset of the file's first unit
    units: Bytes


class LogFiles:
    """Segments, open for reading; those used last stay, none that is deleted does.

    `table` has them for compiled code, too: `places` rows of `engine.front.pulls.pull_words.FileWord`, by number.
    """

    def __init__(self, files: SegmentFiles) -> None:
        self._files = files
        self._open: OrderedDict[int, LogFile] = OrderedDict()
        self.segment_bytes = files.segment_bytes
        self.places = FILES_MAX
        self.table: Words = np.full(FILES_MAX * FILE_WORDS, NO_LOG_FILE, np.int64)
        self._in_table: list[LogFile | None] = [None] * FILES_MAX

    def range(self, offset: int, length: int) -> LogRange:
        """Return a range of the log, all in one segment. Raises SegmentRemoved."""
        base = offset - offset % self.segment_bytes
        file = self._open.get(base)
        if file is None:
            path = self._files.path_of(base)
            try:
                file = self._open[base] = LogFile.open(path, size_bytes=self.segment_bytes)
            except FileNotFoundError as error:
                raise SegmentRemoved(str(path), base) from error
            if len(self._open) > FILES_MAX:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(base)
        place = base // self.segment_bytes % self.places
        if self._in_table[place] is not file:
            self._in_table[place] = file
            row = place * FILE_WORDS
            self.table[row + FileWord.BASE], self.table[row + FileWord.FD] = base, file.fd
            self.table[row + FileWord.ADDRESS] = file.array.ctypes.data
        return LogRange(file, offset - base, length)

    def drop_below(self, offset: int) -> None:
        """Unmap what lies wholly below an offset: it is deleted, and its room is wanted."""
        for base in [base for base in self._open if base + self.segment_bytes <= offset]:
            del self._open[base]
        for place, file in enumerate(self._in_table):
            if file is not None and file.end_offset <= offset:
                self._in_table[place] = None
                self.table[place * FILE_WORDS + FileWord.BASE] = NO_LOG_FILE


class LogView:
    """The log and its queues as one front maps them."""

    def __init__(self, config: BrokerConfig, counters: BrokerCounters, *, corrects: bool) -> None:
        self._counters, self._corrects, self._root = counters, corrects, Path(config.store_path_root_dir)
        self.ends = QueueEnds.attach(counters.directory)
        self._maps, self._kinds = FileMaps(), kinds_of(config)
        self._queue_bytes = file_bytes_of(config.mapped_file_size_consume_queue_bytes)
        self.files = LogFiles(SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes))
        self._readers: OrderedDict[Queue, QueueReader] = OrderedDict()
        self._minimums: dict[Queue, tuple[int, int]] = {}  # for which beginning of the log: minimum
        self._rules = line_of(config.compat).queues
        self._memory_bytes = int(_memory_bytes() * (config.memory_max_percent / 100.0))
        self.limits: Words = np.zeros(len(Limit), np.int64)
        for limit, value in (
            (Limit.COUNT_IN_MEMORY, config.transfer_count_in_memory_max),
            (Limit.BYTES_IN_MEMORY, min(config.transfer_bytes_in_memory_max, BODY_BYTES_MAX)),
            (Limit.COUNT_ON_DISK, config.transfer_count_on_disk_max),
            (Limit.BYTES_ON_DISK, min(config.transfer_bytes_on_disk_max, BODY_BYTES_MAX)),
            (Limit.MEMORY_BYTES, self._memory_bytes), (Limit.SEGMENT_BYTES, self.files.segment_bytes),
            (Limit.COUNTS_REFUSED, line_of(config.compat).pull.counts_refused),
        ):  # fmt: skip
            self.limits[limit] = value
        self.rows: Words = np.zeros((ROWS_MAX, len(Unit)), np.int64)
        self.ranges: Words = np.zeros((RANGES_MAX, len(RangeColumn)), np.int64)
        self.taken: Words = np.zeros(len(Taken), np.int64)

    def end_of(self, queue: Queue) -> int:
        """Return where a queue ends; 0 without messages."""
        slot = self.slot_of(queue)
        return int(self.ends.next_offsets[slot]) if slot != NO_SLOT else 0

    def slot_of(self, queue: Queue) -> int:
        """Return the queue's place among the ends."""
        return self.ends.find(queue[0].encode("utf-8", "replace"), queue[1])

    @property
    def named(self) -> int:
        """Return how many queues had a slot at the last look."""
        return len(self.ends)

    def named_from(self, slot: int) -> list[Queue]:
        """Return the queues with that slot or a later one, in their order."""
        return self.ends.names_from(slot)

    def extent(self, queue: Queue) -> QueueExtent:
        """Return from which to which offset a queue has messages."""
        end = self.end_of(queue)
        if not end:
            return QueueExtent(0, 0)
        begins = self._counters.min_physical_offset.read()
        served = self._minimums.get(queue)
        if served is None or served[0] != begins:
            low = self._reader(queue).min_offset(begins, end, self._rules)
            if len(self._minimums) > READERS_MAX:
                self._minimums.clear()
            served = self._minimums[queue] = begins, low
        return QueueExtent(min(served[1], end), end)

    def file_of(self, queue: Queue, offset: int) -> QueueFile | None:
        """Return what compiled code needs of that part of a queue; None where it cannot be had."""
        slot = self.slot_of(queue)
        if slot == NO_SLOT:
            return QueueFile(slot, self._counters.min_physical_offset.read(), 0, 0, NO_UNITS)
        if not self.end_of(queue) or not self._reader(queue).is_plain:
            return None
        minimum = self.extent(queue).min_offset
        first, units = self._reader(queue).file_of(offset)
        return QueueFile(slot, self._minimums[queue][0], minimum, first, units)

    def catch(self, queue: Queue, offset: int, max_messages: int, tags: TagFilter) -> tuple[Catch, list[LogRange]]:
        """Return what a pull from that queue offset gets."""
        extent = self.extent(queue)
        other = outside(offset, extent, corrects=self._corrects)
        if other is not None:
            return other, []
        reader, limits, taken = self._reader(queue), self.limits, self.taken
        limits[Limit.MESSAGES], limits[Limit.TAKES_ALL] = max_messages, tags.takes_all
        limits[Limit.LOG_BEGINS] = self._counters.min_physical_offset.read()
        limits[Limit.LOG_ENDS] = log_ends = self._counters.max_physical_offset.read()
        limits[Limit.SCAN_BEFORE] = scan_before(offset, max_messages, reader.unit_bytes)
        room = int(min(limits[Limit.SCAN_BEFORE] - offset, ROWS_MAX))
        for most in (min(AT_FIRST, room), room):
            count = reader.read(offset, extent.max_offset, most, self.rows)
            if count == NO_FILE:
                return without_file(offset, extent, reader.units_a_file, corrects=self._corrects), []
            select(self.rows, count, limits, tags.codes, self.ranges, taken)
            if taken[Taken.IS_FULL] or count < most:
                break
        caught = looked(offset, extent, taken, log_ends, self._memory_bytes)
        try:
            return caught, [self.files.range(*each) for each in self.ranges[: taken[Taken.RANGES]].tolist()]
        except SegmentRemoved:  # expired just now
            return caught.removed(), []

    def any_matched(self, queue: Queue, tags: TagFilter, start: int, end: int) -> bool:
        """Whether a message of [start, end) is one of these."""
        reader = self._reader(queue)
        while start < end:
            count = reader.read(start, end, ROWS_MAX, self.rows)
            if count <= 0:
                return True  # the client gets an error that names the offsets that are there
            if any_matched(self.rows, count, tags.codes):
                return True
            start = int(self.rows[count - 1, Unit.QUEUE_OFFSET] + self.rows[count - 1, Unit.MESSAGES])
        return False

    def turn(self) -> None:
        """Unmap files that have expired."""
        self.files.drop_below(self._counters.min_physical_offset.read())

    def _reader(self, queue: Queue) -> QueueReader:
        reader = self._readers.get(queue)
        if reader is None:
            reader = self._readers[queue] = self._made(queue)
            if len(self._readers) > READERS_MAX:
                self._readers.popitem(last=False)
        return reader

    def _made(self, queue: Queue) -> QueueReader:
        topic, queue_id = queue
        below = Path(topic) / str(queue_id)
        batches = self._root / BATCH_QUEUES / below
        if batches.is_dir():
            return QueueReader(self._maps, batches, self._kinds.batch_file_bytes, unit_bytes=UNIT_BYTES)
        plain, ext = self._root / CONSUME_QUEUES / below, self._root / QUEUE_EXTENSIONS / below
        return QueueReader(
            self._maps,
            plain,
            self._queue_bytes,
            unit_bytes=ENTRY_BYTES,
            ext_directory=ext,
            ext_file_bytes=self._kinds.ext_file_bytes,
        )

    def close(self) -> None:
        """Unmap all queue files and segments."""
        self.ends.close()
        self.files.drop_below(1 << 62)


def _memory_bytes() -> int:
    """Return this host's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class EmptyQueues:
    """Queues without a slot that pulls wait for. A look costs nothing while no queue is new."""

    def __init__(self, view: LogView) -> None:
        self._view, self._named = view, 0  # of all queues that there are, those that were looked at
        self._queues: set[Queue] = set()

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, queue: Queue) -> bool:
        return queue in self._queues

    def slot_of(self, queue: Queue) -> int:
        """Return the queue's slot; a queue without one is watched from now on."""
        slot = self._view.slot_of(queue)
        if slot == NO_SLOT:
            if not self._queues:
                self._named = self._view.named
            self._queues.add(queue)
        return slot

    def discard(self, queue: Queue) -> None:
        """Nobody waits for it any more."""
        self._queues.discard(queue)

    def clear(self) -> None:
        """Forget all queues without a slot."""
        self._queues.clear()

    def begun(self) -> Iterator[tuple[Queue, int]]:
        """Yield the watched queues that have a slot now, with it, and stop watching them."""
        if not self._queues:
            return
        news, first = self._view.named_from(self._named), self._named
        self._named += len(news)
        for slot, queue in enumerate(news, first):
            if queue in self._queues:
                self._queues.remove(queue)
                yield queue, slot


FIRST_ROOM = 1024


class HeldEnds:
    """Followed queues. One look costs two vectors, however many there are."""

    def __init__(self, view: LogView) -> None:
        self._view = view
        self._slots: Words = np.zeros(FIRST_ROOM, np.int64)
        self._seen: Words = np.zeros(FIRST_ROOM, np.int64)
        self._queues: list[Queue] = []
        self._places: dict[Queue, int] = {}
        self._empty_queues = EmptyQueues(view)

    def __len__(self) -> int:
        return len(self._queues) + len(self._empty_queues)

    def follow(self, queue: Queue, end: int) -> None:
        """Look at this queue, too, which was seen to end there."""
        if queue in self._places or queue in self._empty_queues:
            return
        slot = self._empty_queues.slot_of(queue)
        if slot != NO_SLOT:
            self._enter(queue, slot, end)

    def _enter(self, queue: Queue, slot: int, end: int) -> None:
        place = len(self._queues)
        if place == len(self._slots):
            self._slots = np.concatenate((self._slots, np.zeros_like(self._slots)))
            self._seen = np.concatenate((self._seen, np.zeros_like(self._seen)))
        self._slots[place], self._seen[place] = slot, end
        self._queues.append(queue)
        self._places[queue] = place

    def forget(self, queue: Queue) -> None:
        """Nobody waits for it any more."""
        self._empty_queues.discard(queue)
        place = self._places.pop(queue, None)
        if place is None:
            return
        last = self._queues.pop()
        if last != queue:
            end = len(self._queues)
            self._queues[place], self._places[last] = last, place
            self._slots[place], self._seen[place] = self._slots[end], self._seen[end]

    def moved(self) -> list[tuple[Queue, int]]:
        """The queues that have more than when they were looked at last, and where they end now."""
        for queue, slot in self._empty_queues.begun():
            self._enter(queue, slot, 0)
        count = len(self._queues)
        now = self._view.ends.next_offsets[self._slots[:count]]
        changed = np.flatnonzero(now != self._seen[:count])
        self._seen[:count] = now
        return [(self._queues[place], int(now[place])) for place in changed.tolist()]
