"""The queues of the broker that runs on this host, read in place: its cursors, consume queues and segments are mapped.

Implements: DefaultMessageStore.getMessage, as a front answers pulls (`engine.front.pulls.log_view`)
A reader sees of a queue what a pull would: up to the end that the dispatcher published. Nothing here is written, but
for the count of those who sleep on the dispatcher's cursor, which is how it knows whom to wake.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.clients.blocks import Block, Chosen, Origin, opened, pieces_of
from engine.clients.local.sleep_kernel import Watch, await_entries, has_more
from engine.clients.measure_kernel import Look, Part, measure_units
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.queue_ends import NO_SLOT, QueueEnds
from engine.shared_memory.queue_table import TableWord
from ipc.arrays import Words
from ipc.compiled import atomics
from ipc.errors import RegionDenied
from store.compat import line_of
from store.errors import CorruptRecord, MalformedData, SegmentSizeMismatch
from store.files import file_io, mapped_files
from store.files.segment_files import SegmentFiles
from store.message.record import decode
from store.message.unit import Unit
from store.names import BATCH_QUEUES, CONSUME_QUEUES
from store.queues.batch_consume_queue import UNIT_BYTES
from store.queues.consume_queue import ENTRY_BYTES, file_bytes_of
from store.reading.extent import Running
from store.reading.queue_reader import FileMaps, QueueReader

UNITS_MAX, READ_BYTES_MAX = 1 << 13, 16 << 20  # of one read
LOOKED_AT = 4  # units are few, however long their bodies are
SEGMENTS_MAX, QUEUE_FILES_MAX = 8, 64  # mapped; each keeps a file descriptor
NAP_SECONDS = 0.001  # of a reader that may not write into the broker's memory
NS_PER_S = 1_000_000_000

Queue = tuple[str, int]


class Catch(NamedTuple):
    """What a read got. `is_moved`: the queue has not the offset that was asked for, and goes on at `next_offset`."""

    blocks: list[Block]
    next_offset: int
    end: int  # of the queue
    is_moved: bool = False


class LocalQueues:
    """The queues of one run of a broker. Not for two threads at once, but for its sleepers."""

    def __init__(self, running: Running) -> None:
        settings = running.settings
        self.is_copy = settings["brokerRole"] == "SLAVE"  # of a master's queues, which may have more
        self._running, directory = running, running.region_directory
        self.counters, self.may_sleep = _counters_in(directory)
        self.ends = QueueEnds.attach(directory)
        self._files = SegmentFiles(settings["storePathCommitLog"], int(settings["mappedFileSizeCommitLog"]))
        self._queue_bytes = file_bytes_of(int(settings["mappedFileSizeConsumeQueue"]))
        self._broker = str(settings["brokerName"])
        self._rules = line_of(str(settings["compat"])).queues
        self._maps = FileMaps(QUEUE_FILES_MAX)
        self._segments: OrderedDict[int, Origin] = OrderedDict()
        self._slots: dict[Queue, int] = {}
        self._without: dict[Queue, int] = {}  # queues without a slot, by how many queues there were
        self._readers: dict[Queue, QueueReader] = {}
        self._minimums: dict[Queue, int] = {}  # for this beginning of the log
        self._begins = self.counters.min_physical_offset.read()
        self._units: Words = np.zeros((UNITS_MAX, len(Unit)), np.int64)
        self._parts: Words = np.zeros((UNITS_MAX, len(Part)), np.int64)
        self._look: Words = np.zeros(len(Look), np.int64)
        self.calls: Words = np.zeros(1, np.int64)  # a sleeper returns when it changes

    def is_alive(self) -> bool:
        """Whether this run of the broker goes on."""
        return self._running.is_alive()

    def close(self) -> None:
        """Unmap all. Views of messages keep their segments mapped."""
        self.ends.close()
        self.counters.region.close()
        self._maps = FileMaps(QUEUE_FILES_MAX)
        self._segments.clear()
        self._readers.clear()

    # where queues begin and end

    def slot_of(self, queue: Queue) -> int:
        """The queue's place among the ends; NO_SLOT of one that never had a message."""
        slot = self._slots.get(queue)
        if slot is None:
            used = self.used
            if self._without.get(queue) == used:
                return NO_SLOT
            slot = self.ends.find(queue[0].encode("utf-8", "replace"), queue[1])
            if slot == NO_SLOT:
                self._without[queue] = used
            else:
                self._slots[queue] = slot
        return slot

    @property
    def used(self) -> int:
        """How many queues have a slot."""
        return int(self.ends.words[TableWord.USED])

    def end_of(self, queue: Queue) -> int:
        """The published end of a queue; 0 without messages."""
        slot = self.slot_of(queue)
        return int(self.ends.next_offsets[slot]) if slot != NO_SLOT else 0

    def _min_of(self, queue: Queue, end: int) -> int:
        known = self._minimums.get(queue)
        if known is None:
            known = self._minimums[queue] = self._reader(queue).min_offset(self._begins, end, self._rules)
        return min(known, end)

    def forget_deleted(self) -> None:
        """Unmap what retention has deleted since: its room on disk is wanted."""
        begins = self.counters.min_physical_offset.read()
        if begins != self._begins:
            self._begins, self._maps = begins, FileMaps(QUEUE_FILES_MAX)
            self._readers.clear()
            self._minimums.clear()
            for base in [base for base in self._segments if base + self._files.segment_bytes <= begins]:
                del self._segments[base]

    # messages

    def read(self, queue: Queue, offset: int, wanted: Chosen, most: int) -> Catch:
        """Messages from an offset on, of `most` offsets or less. Raises CorruptRecord, MalformedData, AccessDenied."""
        end = self.end_of(queue)
        if offset >= end:
            return self._behind(offset, end)
        low = self._min_of(queue, end)
        if offset < low:
            return Catch([], low, end, is_moved=True)
        reader, units = self._reader(queue), self._units
        count = reader.read(offset, end, min(most, UNITS_MAX), units)
        if count <= 0:  # deleted meanwhile
            following = offset + reader.units_a_file - offset % reader.units_a_file
            return Catch([], min(following, end), end, is_moved=True)
        if count > LOOKED_AT:
            count = min(count, 1 + int(np.searchsorted(np.cumsum(units[:count, Unit.SIZE]), READ_BYTES_MAX)))
        blocks: list[Block] = []
        passed = self._gather(offset, count, wanted, blocks)
        if passed:
            return Catch(blocks, self._behind_unit(passed - 1), end)
        there = next((index for index in range(1, count) if self._segment_of(index) is not None), count)
        return Catch([], self._behind_unit(there - 1), end, is_moved=True)

    def _behind(self, offset: int, end: int) -> Catch:
        counters = self.counters
        catches_up = counters.reput_from_offset.read() < counters.recovered_offset.read()
        return Catch([], offset if catches_up else end, end, is_moved=offset > end and not catches_up)

    def _behind_unit(self, index: int) -> int:
        return int(self._units[index, Unit.QUEUE_OFFSET] + self._units[index, Unit.MESSAGES])

    def _gather(self, offset: int, count: int, wanted: Chosen, blocks: list[Block]) -> int:
        """Add the messages of the units; how many units were passed.

        It ends before a unit whose record is not in the log, and before one that is not sound: if that is the first,
        CorruptRecord is raised, or MalformedData.
        """
        look, at = self._look, 0
        look[Look.COUNT] = count
        while at < count and (segment := self._segment_of(at)) is not None:
            look[Look.FIRST], look[Look.BASE_OFFSET] = at, segment.base_offset
            measure_units(segment.array, self._units, wanted.codes, wanted.tags, look, self._parts)
            self._add(segment, offset, wanted, blocks)
            if look[Look.IS_CORRUPT] and not look[Look.NEXT]:
                raise self._corrupt(segment, int(look[Look.NEXT]))
            if look[Look.NEXT] == at:
                break
            at = int(look[Look.NEXT])
        return at

    def _add(self, segment: Origin, offset: int, wanted: Chosen, blocks: list[Block]) -> None:
        """Add the blocks of the rows that were made. A batch that cannot be opened takes back its units."""
        for number, piece in enumerate(pieces_of(segment, self._parts, self._look)):
            try:
                blocks += opened(piece, wanted.tags, offset) if piece.is_batch else [piece.block]
            except MalformedData:
                if not number and not self._look[Look.FIRST]:
                    raise
                self._look[Look.NEXT] = self._unit_at(piece.block.first)
                return

    def _unit_at(self, queue_offset: int) -> int:
        """The number of the unit that begins at a queue offset."""
        return int(np.searchsorted(self._units[: self._look[Look.COUNT], Unit.QUEUE_OFFSET], queue_offset))

    def _corrupt(self, segment: Origin, index: int) -> CorruptRecord:
        """Why the unit's record is none."""
        physical_offset, size = (int(self._units[index, column]) for column in (Unit.PHYSICAL_OFFSET, Unit.SIZE))
        try:
            decode(segment.view, physical_offset - segment.base_offset, path=segment.path)
        except CorruptRecord as error:
            return error
        return CorruptRecord(
            segment.path, physical_offset, f"its queue says that it has {size} bytes there, and it disagrees"
        )

    # files

    def _segment_of(self, index: int) -> Origin | None:
        """The segment with a unit's whole record; None where the log has not got it, or not any more."""
        offset, size = int(self._units[index, Unit.PHYSICAL_OFFSET]), int(self._units[index, Unit.SIZE])
        look = self._look
        look[Look.LOG_BEGINS] = begins = self.counters.min_physical_offset.read()
        look[Look.LOG_ENDS] = ends = self.counters.max_physical_offset.read()
        base = self._files.base_of(offset)
        if size <= 0 or not begins <= offset <= ends - size or offset + size > base + self._files.segment_bytes:
            return None
        return self._segments.get(base) or self._map(base)

    def _map(self, base: int) -> Origin | None:
        path = self._files.path_of(base)
        try:
            fd = file_io.open_file(path, writable=False)
        except FileNotFoundError:
            return None
        try:
            size_bytes = os.fstat(fd).st_size
            if size_bytes != self._files.segment_bytes:
                raise SegmentSizeMismatch(str(path), size_bytes, self._files.segment_bytes)
            mapping = mapped_files.map_file(fd, size_bytes, writable=False)
        finally:
            os.close(fd)
        segment = self._segments[base] = Origin(
            np.frombuffer(mapping, np.uint8), memoryview(mapping), self._broker, str(path), base
        )
        if len(self._segments) > SEGMENTS_MAX:
            self._segments.popitem(last=False)
        return segment

    def _reader(self, queue: Queue) -> QueueReader:
        reader = self._readers.get(queue)
        if reader is None:
            below, root = Path(queue[0]) / str(queue[1]), self._running.store_root
            batches = root / BATCH_QUEUES / below
            if batches.is_dir():
                reader = QueueReader(self._maps, batches, self._queue_bytes, unit_bytes=UNIT_BYTES)
            else:  # a tags code that lies in an extension matches all: the exact comparison decides
                reader = QueueReader(
                    self._maps, root / CONSUME_QUEUES / below, self._queue_bytes, unit_bytes=ENTRY_BYTES
                )
            self._readers[queue] = reader
        return reader

    # sleep

    def sleeper(self, used: int, queues: list[int]) -> Callable[[float], bool]:
        """A function that sleeps for seconds, until one of `queues` has more, or there are more queues than `used`.

        `queues` has a slot and an end for each. The function returns whether there is more; `wake` ends its sleep. All
        that it needs stays mapped for it.
        """
        watch = np.array([int(self.calls[0]), used, *queues], np.int64)
        reput, table, calls = self.counters.reput_from_offset, self.ends.words, self.calls
        words, index = reput.words, int(reput.index)

        def sleep(seconds: float) -> bool:
            return bool(await_entries(words, index, table, calls, watch, int(seconds * NS_PER_S)))

        def look_again_and_again(seconds: float) -> bool:
            until = time.monotonic() + seconds
            while calls[0] == watch[Watch.CALLS] and time.monotonic() < until:
                if has_more(table, watch):
                    return True
                time.sleep(NAP_SECONDS)
            return False

        return sleep if self.may_sleep else look_again_and_again

    def wake(self) -> None:
        """Have the thread that sleeps by `sleeper` return."""
        self.calls[0] += 1
        if self.may_sleep:
            atomics.wake(self.counters.reput_from_offset.words, int(self.counters.reput_from_offset.index))


def _counters_in(directory: Path) -> tuple[BrokerCounters, bool]:
    """The counters, and whether they may be slept on: for that the count of sleepers is written."""
    try:
        return BrokerCounters.attach(directory, writable=True), True
    except RegionDenied:
        return BrokerCounters.attach(directory), False
