"""How large the messages of each topic are, from the entries of its queues: read when somebody asks, each entry once.

Implements: the figures behind rocketmq_message_size, of which nothing is counted while messages are sent
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from engine.monitoring.counted import KEPT, SENT, Row
from engine.monitoring.sent_messages import is_counted
from engine.settings.config import BrokerConfig
from engine.settings.store_parts import kinds_of
from engine.shared_memory.queue_ends import QueueEnds
from ipc.arrays import Words
from store.message.unit import Unit
from store.names import BATCH_QUEUES, CONSUME_QUEUES
from store.queues.batch_consume_queue import UNIT_BYTES
from store.queues.consume_queue import ENTRY_BYTES, file_bytes_of
from store.reading.queue_reader import NO_FILE, FileMaps, QueueReader

ROWS, MAPS = 16_384, 64
ENTRIES_MAX = 4_000_000  # for one question; what is more is read for the next
BOUNDS = KEPT[SENT].bounds


class MessageSizes:
    """Sizes in the queues as they end when this is made; used on a thread of its own."""

    def __init__(self, config: BrokerConfig, ends: QueueEnds) -> None:
        self._config, self._ends, self._maps = config, ends, FileMaps(MAPS)
        self._names: list[tuple[str, int]] = ends.names()
        self._seen: Words = ends.next_offsets[: len(self._names)].copy()
        self._rows: Words = np.zeros((ROWS, len(Unit)), np.int64)
        self.by_topic: dict[str, Row] = {}

    def look(self) -> dict[str, Row]:
        """Read what has come since; by topic."""
        if len(self._ends) > len(self._names):
            self._names = self._ends.names()
            more = len(self._names) - len(self._seen)
            self._seen = np.concatenate([self._seen, np.zeros(more, np.int64)])
        now, left = self._ends.next_offsets[: len(self._names)].copy(), ENTRIES_MAX
        for slot in np.flatnonzero(now > self._seen).tolist():
            topic, queue_id = self._names[slot]
            if not is_counted(topic):
                self._seen[slot] = now[slot]
            elif left > 0:
                left -= self._read(slot, topic, queue_id, int(now[slot]), left)
        return {topic: list(row) for topic, row in self.by_topic.items()}

    def _read(self, slot: int, topic: str, queue_id: int, end: int, most: int) -> int:
        reader, at, seen = self._reader(topic, queue_id), int(self._seen[slot]), 0
        row = self.by_topic.setdefault(topic, [0] * KEPT[SENT].width)
        while at < end and seen < most:
            count = reader.read(at, end, ROWS, self._rows)
            if count <= 0:
                if count == NO_FILE:  # it expired meanwhile: the next one begins
                    at += reader.units_a_file - at % reader.units_a_file
                    continue
                break
            sizes, messages = self._rows[:count, Unit.SIZE], self._rows[:count, Unit.MESSAGES]
            each = sizes // np.maximum(messages, 1)
            buckets = np.bincount(np.searchsorted(BOUNDS, each), minlength=len(BOUNDS) + 1)
            for number, many in enumerate(buckets.tolist()):
                row[number] += many
            row[-1] += int(each.sum())
            at = int(self._rows[count - 1, Unit.QUEUE_OFFSET] + max(1, int(messages[-1])))
            seen += count
        self._seen[slot] = min(at, end)
        return seen

    def _reader(self, topic: str, queue_id: int) -> QueueReader:
        root, below = Path(self._config.store_path_root_dir), Path(topic) / str(queue_id)
        batches = root / BATCH_QUEUES / below
        if batches.is_dir():
            return QueueReader(self._maps, batches, kinds_of(self._config).batch_file_bytes, unit_bytes=UNIT_BYTES)
        file_bytes = file_bytes_of(self._config.mapped_file_size_consume_queue_bytes)
        return QueueReader(self._maps, root / CONSUME_QUEUES / below, file_bytes, unit_bytes=ENTRY_BYTES)
