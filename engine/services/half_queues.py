"""The half queue and its op queue as a round over them asks: op messages by the dozen, half messages one by one.

Implements: TransactionalMessageBridge.getMessage, getHalfMessage, getOpMessage
"""

from __future__ import annotations

from pathlib import Path

from engine.protocol.services.transactions import Half, HalfRead, Op, Ops, Pulled, java_number
from engine.services.queue_entries import FollowedQueue
from engine.services.records import Records
from engine.shared_memory.cursors import BrokerCounters
from ipc.clock import wall_ms
from store.errors import CorruptRecord
from store.files.segment_files import SegmentFiles
from store.message.properties import CHECK_TIMES, IMMUNITY_SECONDS, PREPARED_QUEUE_OFFSET
from store.message.record import Message
from store.message.topics import HALF_TOPIC, OP_TOPIC
from store.put.resend import OP_SEPARATOR, OP_TAG

OPS_MAX = 32  # OP_MSG_PULL_NUMS


class HalfQueues:
    """Queue 0 of both topics: RocketMQ has half messages nowhere else."""

    def __init__(self, consumequeue: Path, file_bytes: int, files: SegmentFiles, counters: BrokerCounters) -> None:
        self._counters, self.records = counters, Records(files, counters)
        self._halves = FollowedQueue(consumequeue / HALF_TOPIC / "0", file_bytes)
        self._ops = FollowedQueue(consumequeue / OP_TOPIC / "0", file_bytes)

    def first_offsets(self) -> tuple[int, int]:
        """Return the queue offsets at which half and op messages begin."""
        below = self._counters.reput_from_offset.read()
        halves, ops = self._halves.bounds(below), self._ops.bounds(below)
        return halves[0] if halves else 0, ops[0] if ops else 0

    def halves_end(self) -> int:
        """Return the queue offset at which half messages end."""
        bounds = self._halves.bounds(self._counters.reput_from_offset.read())
        return bounds[1] if bounds else 0

    @staticmethod
    def _misses(queue: FollowedQueue, offset: int, below: int) -> tuple[Pulled, int]:
        """Return why no message is there, and where one may be, as of the same look: what came since is not missing."""
        bounds = queue.bounds(below)
        if bounds is None or bounds[0] <= offset == bounds[1] or bounds[1] == 0:
            return Pulled.NO_NEW, offset
        return Pulled.ILLEGAL, bounds[0] if offset < bounds[0] else min(offset + 1, bounds[1])

    def read_ops(self, offset: int) -> Ops:
        """The op messages from there."""
        below = self._counters.reput_from_offset.read()
        entries = self._ops.read(offset, OPS_MAX, below)
        if entries is None or not len(entries) or entries.physical_offsets[0] < 0:
            return Ops(*self._misses(self._ops, offset, below))
        ops = []
        for at, place in enumerate(entries.physical_offsets.tolist()):
            message = self._message(place)
            said = None if message is None or message.tags != OP_TAG else op_offsets_of(bytes(message.body))
            ops.append(Op(offset + at, wall_ms() if message is None else message.born_timestamp_ms, said))
        return Ops(Pulled.MESSAGES, offset + len(ops), tuple(ops))

    def read_half(self, offset: int) -> HalfRead:
        """Read the half message at a queue offset; without one, the status says why."""
        below = self._counters.reput_from_offset.read()
        entries = self._halves.read(offset, 1, below)
        if entries is None or not len(entries) or entries.physical_offsets[0] < 0:
            return HalfRead(None, *self._misses(self._halves, offset, below))
        message = self._message(int(entries.physical_offsets[0]))
        if message is None:
            return HalfRead(None, Pulled.ILLEGAL, offset + 1)
        of = message.properties.get
        return HalfRead(
            Half(
                offset,
                message.born_timestamp_ms,
                message.store_timestamp_ms,
                of(CHECK_TIMES),
                of(IMMUNITY_SECONDS),
                of(PREPARED_QUEUE_OFFSET),
                message,
            ),
            Pulled.MESSAGES,
            offset + 1,
        )

    def _message(self, physical_offset: int) -> Message | None:
        """Return the message at an offset; None where it is gone or cannot be read."""
        try:
            return self.records.message(physical_offset) if physical_offset >= 0 else None
        except CorruptRecord:
            return None

    def close(self) -> None:
        """Close both queues and the mapped segments."""
        self._halves.close()
        self._ops.close()
        self.records.close()


def op_offsets_of(body: bytes) -> tuple[int, ...]:
    """The half queue offsets that an op message names: one (4.9), or several with commas (5.x)."""
    return tuple(java_number(text) for text in body.decode("utf-8", "replace").split(OP_SEPARATOR) if text)
