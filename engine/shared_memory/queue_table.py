"""Tables of a word for every (topic, queue id), in shared memory: the next queue offset that the writer will give.

Implements: the topicQueueTable of CommitLog (spec: store-formats, section 8)
Written by the writer only (the supervisor fills it from recovery before there is a writer). A queue keeps its slot for
the life of the broker, so descriptors in the rings name queues by slot. `queue_ends` is another of them.

Region "queues": word 0 capacity, word 1 used, word 2 reserved | from word 8: next queue offset of each slot | names,
264 bytes each: queue id (4), topic bytes (4), topic (256). An entry counts once `used` has passed it. The file is as
long as all QUEUES_MAX need, and has blocks for the first `reserved` slots: a step more whenever those are used up.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Self

import numpy as np

from ipc.arrays import Words
from ipc.compiled.atomics import publish
from ipc.errors import RegionNoSpace
from ipc.region import Region

LAYOUT = 2
QUEUES_FILE = "queues"  # and the region's kind
TOPIC_BYTES_MAX = 256
NAME_DTYPE = np.dtype([("queue_id", "<i4"), ("topic_bytes", "<i4"), ("topic", f"V{TOPIC_BYTES_MAX}")])
QUEUES_STEP = 16384  # 4.3 MiB
QUEUES_MAX = 1 << 20


class TableWord(IntEnum):
    """The words of the region; NEXT_OFFSETS: the first slot's."""

    CAPACITY = 0
    USED = 1
    RESERVED = 2
    NEXT_OFFSETS = 8


class NoQueueSlot(Exception):
    """Raised when there is no slot for one more queue; `errno` says whether the table or the memory is full."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.errno = number


class QueueTable:
    """All queues of the store, by slot."""

    file = QUEUES_FILE

    def __init__(self, region: Region) -> None:
        self._region = region
        self.words: Words = region.words
        self.capacity = int(region.words[TableWord.CAPACITY])
        self.next_offsets: Words = region.words[TableWord.NEXT_OFFSETS : TableWord.NEXT_OFFSETS + self.capacity]
        names_at = (TableWord.NEXT_OFFSETS + self.capacity) * 8
        self._names = region.bytes[names_at : names_at + self.capacity * NAME_DTYPE.itemsize].view(NAME_DTYPE)
        self._slots: dict[tuple[bytes, int], int] = {}
        self.look()

    @classmethod
    def create(
        cls, directory: Path, queue_offsets: Mapping[tuple[str, int], int], queues_max: int = QUEUES_MAX
    ) -> Self:
        """The table of a store as recovery found it. Raises RegionNoSpace."""
        capacity = max(queues_max, len(queue_offsets))
        size = TableWord.NEXT_OFFSETS * 8 + capacity * (8 + NAME_DTYPE.itemsize)
        path = directory / cls.file
        region = Region.create(path, size, kind=cls.file, layout=LAYOUT, reserved_bytes=TableWord.NEXT_OFFSETS * 8)
        region.words[TableWord.CAPACITY] = capacity
        table = cls(region)
        while table._reserved < min(len(queue_offsets) + 1, capacity):
            table._reserve_step()
        for (topic, queue_id), next_offset in queue_offsets.items():
            table.next_offsets[table.slot_of(topic.encode(), queue_id)] = next_offset
        return table

    @classmethod
    def attach(cls, directory: Path, writable: bool = False) -> Self:
        """The table of a running broker. Raises RegionMissing, RegionMismatch."""
        return cls(Region.attach(directory / cls.file, kind=cls.file, layout=LAYOUT, writable=writable))

    def __len__(self) -> int:
        """Return the number of queues."""
        return len(self._slots)

    def names(self) -> list[tuple[str, int]]:
        """(topic, queue id) of every queue."""
        return [(topic.decode(errors="replace"), queue_id) for topic, queue_id in self._slots]

    def names_from(self, slot: int) -> list[tuple[str, int]]:
        """(topic, queue id) of the queues that have that slot or one behind it, also of those not taken in yet."""
        return [(topic.decode(errors="replace"), queue_id) for topic, queue_id in self._read(slot)]

    def _read(self, first: int) -> list[tuple[bytes, int]]:
        until = int(self.words[TableWord.USED])
        if first >= until:
            return []
        names = self._names[first:until].tolist()  # all at once: there may be very many
        return [(topic[:count], queue_id) for queue_id, count, topic in names]

    def has(self, topic: bytes, queue_id: int) -> bool:
        """Whether the queue has a slot."""
        return (topic, queue_id) in self._slots

    def look(self) -> None:
        """Take in the queues that its writer has added since."""
        first = len(self._slots)
        self._slots.update((name, slot) for slot, name in enumerate(self._read(first), first))

    @property
    def has_news(self) -> bool:
        """Whether `look` would take in any."""
        return int(self.words[TableWord.USED]) > len(self._slots)

    def slot_of(self, topic: bytes, queue_id: int) -> int:
        """The queue's slot, a new one at its first message. Raises NoQueueSlot."""
        slot = self._slots.get((topic, queue_id))
        if slot is not None:
            return slot
        slot = int(self.words[TableWord.USED])
        if slot == self.capacity:
            raise NoQueueSlot(errno.ENOSPC)
        if slot == self._reserved:
            try:
                self._reserve_step()
            except RegionNoSpace:
                raise NoQueueSlot(errno.ENOMEM) from None
        self._names[slot] = (queue_id, len(topic), topic.ljust(TOPIC_BYTES_MAX, b"\0"))
        self.next_offsets[slot] = 0
        publish(self.words, int(TableWord.USED), slot + 1)  # after name and offset: slots below it are whole
        self._slots[topic, queue_id] = slot
        return slot

    @property
    def _reserved(self) -> int:
        return int(self.words[TableWord.RESERVED])

    def _reserve_step(self) -> None:
        """Blocks for the next slots. Raises RegionNoSpace."""
        first, until = self._reserved, min(self._reserved + QUEUES_STEP, self.capacity)
        offsets_at, names_at = TableWord.NEXT_OFFSETS * 8, (TableWord.NEXT_OFFSETS + self.capacity) * 8
        for start, width in ((offsets_at, 8), (names_at, NAME_DTYPE.itemsize)):
            self._region.reserve(start + first * width, (until - first) * width)
        self.words[TableWord.RESERVED] = until

    def close(self) -> None:
        """Unmap the region; all views are empty afterwards."""
        empty = np.empty(0, np.int64)
        self.words, self.next_offsets, self._names = empty, empty, np.empty(0, NAME_DTYPE)
        self._region.close()
