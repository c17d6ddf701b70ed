"""Checks batch consume queues: every unit against its record, every record of such a topic against its unit.

Implements: BatchConsumeQueue (spec: store-formats, section 12)
A record stands for many messages, so this is plain Python over records, and numpy over units.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from store.errors import QueueFileMismatch
from store.message.multi_dispatch import JAVA_LONG
from store.message.properties import INNER_BASE, INNER_NUM
from store.message.record import Message
from store.names import BATCH_QUEUES
from store.queues.batch_consume_queue import BatchConsumeQueue
from store.queues.consume_queue import queue_directories
from store.verify.finding import REBUILD, Finding

COUNTS_END = 1 << 15
QueueKey = tuple[str, int]


class _Units:
    """One queue's units, in the log's order, and which of them a record was found for."""

    def __init__(self, queue: BatchConsumeQueue) -> None:
        self.directory = queue.directory
        self.units = queue.entries(0, queue.max_offset)
        self.offsets = self.units["physical_offset"].astype(np.int64)
        self.matched = np.zeros(len(self.units), np.bool_)

    def number_of(self, physical_offset: int) -> int | None:
        """The unit of the record there; None when none says so."""
        numbers = np.flatnonzero(self.offsets == physical_offset)
        return int(numbers[0]) if len(numbers) else None


class BatchCheck:
    """All batch queues of a store; `findings` says which could not be opened."""

    def __init__(self, root: Path) -> None:
        self._by_key: dict[QueueKey, _Units] = {}
        self.findings: list[Finding] = []
        for topic, queue_id, path in queue_directories(root / BATCH_QUEUES):
            try:
                self._by_key[topic, queue_id] = _Units(BatchConsumeQueue.open(path))
            except QueueFileMismatch as error:
                self.findings.append(Finding("QUEUE_FILES", str(path), str(error), REBUILD))
        self.queues = len(self._by_key)
        self.units = sum(len(queue.units) for queue in self._by_key.values())

    def records(self, where: Path, messages: Iterable[Message]) -> Iterator[Finding]:
        """The records of batch topics in one segment."""
        missing: dict[QueueKey, list[int]] = {}
        for message in messages:
            wanted = _unit_of(message)
            if wanted is None:
                continue
            key = message.topic, message.queue_id
            queue = self._by_key.get(key)
            number = queue.number_of(message.physical_offset) if queue is not None else None
            if queue is None or number is None:
                missing.setdefault(key, []).append(message.physical_offset)
                continue
            queue.matched[number] = True
            fields = tuple(int(queue.units[number][name]) for name in _FIELDS)
            if fields != wanted:
                what = f"unit {number} of the record at offset {message.physical_offset} has"
                what += f" {dict(zip(_FIELDS, fields, strict=True))}, it should have {wanted}"
                yield Finding("QUEUE_ENTRY", str(queue.directory), what, REBUILD)
        for (topic, queue_id), offsets in missing.items():
            what = f"{len(offsets)} records of topic {topic!r}, queue {queue_id} have no unit in their batch queue,"
            yield Finding("NOT_IN_QUEUE", str(where), f"{what} first at offset {offsets[0]}", REBUILD)

    def unmatched(self, min_offset: int, limit: int) -> Iterator[Finding]:
        """Units below `limit` that no record was found for, or that are out of order."""
        for queue in self._by_key.values():
            own = ~queue.matched & (queue.offsets >= min_offset) & (queue.offsets < limit)
            if own.any():
                what = f"{int(own.sum())} units point to no record of this queue, first unit {int(own.argmax())}"
                yield Finding("QUEUE_ENTRY", str(queue.directory), what, REBUILD)
            falls = np.diff(queue.offsets) <= 0
            if falls.any():
                what = f"unit {int(falls.argmax()) + 1} is before its predecessor in the log"
                yield Finding("QUEUE_ENTRY", str(queue.directory), what, REBUILD)


_FIELDS = ("size", "tags_code", "store_timestamp_ms", "base_offset", "count")


def _unit_of(message: Message) -> tuple[int, ...] | None:
    """Return what the unit of the record says; None when it can have none."""
    properties = message.properties
    base, count = message.queue_offset, 1
    text_count, text_base = properties.get(INNER_NUM), properties.get(INNER_BASE)
    if text_count is not None and text_base is not None and JAVA_LONG(text_count) and JAVA_LONG(text_base):
        base, count = int(text_base), int(text_count)
    if base < 0 or not 0 < count < COUNTS_END:
        return None
    return message.size, message.tags_code, message.store_timestamp_ms, base, count
