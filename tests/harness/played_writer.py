"""A writer that a test plays at the other end of one ring: answers its questions, takes records, refuses some."""

from __future__ import annotations

import errno

from engine.producer.pipeline import Pipeline
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from ipc.compiled import atomics
from ipc.ring import DESCRIPTOR_WORDS, ControlWord, Descriptor, Ring


class PlayedWriter:
    """The other end of the ring: answers questions, takes records, refuses some."""

    def __init__(self, pipeline: Pipeline, counters: BrokerCounters, ring_bytes: int, slots_max: int = 1000) -> None:
        path = pipeline.ring.path
        number = int(path.name.rpartition("-")[2])
        self.control, self.ring = pipeline.control, Ring.attach(path.parent, number, ring_bytes)
        self._slots_max = slots_max
        self.counters = counters
        self.slots: dict[bytes, int] = {}
        self.offsets: dict[int, int] = {}
        self.taken: list[tuple[int, int, int]] = []  # slot, physical offset or -errno, queue offset, by number

    def answer(self) -> bool:
        asked = int(self.control[ControlWord.ASKED])
        if asked == int(self.control[ControlWord.ANSWERED]):
            return False
        question = self.ring.question.tobytes()
        queue = question[: 16 + int.from_bytes(question[8:16], "little")]
        if queue in self.slots or len(self.slots) < self._slots_max:
            self.control[ControlWord.ANSWER] = self.slots.setdefault(queue, len(self.slots))
        else:
            self.control[ControlWord.ANSWER] = -errno.ENOSPC
        atomics.publish(self.control, int(ControlWord.ANSWERED), asked)
        return True

    def take(self, count: int, refusing: int = 0) -> None:
        rows = self.ring.words.reshape(-1, DESCRIPTOR_WORDS)
        for _ in range(count):
            head = int(self.control[ControlWord.HEAD])
            if head == int(self.control[ControlWord.TAIL]):
                return
            row = rows[head % len(rows)]
            length, slot = int(row[Descriptor.LENGTH_AND_SLOT]) >> 32, int(row[Descriptor.LENGTH_AND_SLOT]) & 0xFFFFFFFF
            end = self.counters.max_physical_offset.read()
            physical_offset = -refusing if refusing else end
            queue_offset = self.offsets.get(slot, 0)
            row[Descriptor.PHYSICAL_OFFSET], row[Descriptor.QUEUE_OFFSET] = physical_offset, queue_offset
            self.taken.append((slot, physical_offset, queue_offset))
            if not refusing:
                self.offsets[slot] = queue_offset + 1
                waiting.publish(self.counters.max_physical_offset, end + length)
            atomics.publish(self.control, int(ControlWord.HEAD), head + 1)
