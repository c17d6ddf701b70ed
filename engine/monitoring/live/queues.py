"""Topics as they grow, and their queues: counts, sizes and rates between two looks, read from shared memory alone.

Names are taken in once; a look costs one copy of the counts, however many queues there are.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.monitoring.live.window import Window
from engine.shared_memory.queue_ends import QueueEnds
from engine.shared_memory.topic_table import TopicSum, TopicTable
from ipc.arrays import Words


class TopicFigures(NamedTuple):
    """One topic; rates over the last ten seconds, or since the first look."""

    topic: str
    messages: int
    bytes: int
    messages_per_second: float
    bytes_per_second: float
    queues: int


class LiveQueues:
    """Every queue's end, and which queues a topic has."""

    def __init__(self, directory: Path) -> None:
        self._ends = QueueEnds.attach(directory)
        self._known = 0
        self._of_topic: dict[str, list[tuple[int, int]]] = {}  # queue id, slot
        self.look()

    def look(self) -> int:
        """Take in what is new; how many queues there are."""
        self._ends.look()
        for slot, (topic, queue_id) in enumerate(self._ends.names_from(self._known), self._known):
            self._of_topic.setdefault(topic, []).append((queue_id, slot))
            self._known = slot + 1
        return self._known

    def count_of(self, topic: str) -> int:
        """Return how many queues of a topic have entries."""
        return len(self._of_topic.get(topic, ()))

    def ends_of(self, topic: str) -> list[tuple[int, int]]:
        """(queue id, end) of each."""
        return sorted((number, int(self._ends.next_offsets[slot])) for number, slot in self._of_topic.get(topic, ()))

    def slot_of(self, topic: str, queue_id: int) -> int:
        """Return the queue's place in `ends`; NO_SLOT for a queue without entries."""
        return self._ends.find(topic.encode(), queue_id)

    @property
    def ends(self) -> Words:
        """Return the next queue offset of each slot."""
        return self._ends.next_offsets

    def close(self) -> None:
        """Unmap the table of queue ends."""
        self._ends.close()


class LiveTopics:
    """Every topic that was given messages since the broker's start."""

    def __init__(self, directory: Path, queues: LiveQueues) -> None:
        self._table, self._queues = TopicTable.attach(directory), queues
        self._names: list[str] = []
        self._past: Window[Words] = Window()

    def take(self, now_ms: int) -> list[TopicFigures]:
        """Return each topic's figures now, with rates since the last look."""
        counts = self._table.counts()
        self._names += self._table.names_from(len(self._names))[: len(counts) - len(self._names)]
        before, a_second = self._past.begin(now_ms, counts)
        grown = counts.copy()
        grown[: len(before)] -= before
        rates = grown * a_second  # at the first look nothing has grown
        self._queues.look()
        used = np.flatnonzero(counts[:, TopicSum.MESSAGES]).tolist()
        columns = (column[used].tolist() for column in (*counts.T, *rates.T))
        names = [self._names[slot] for slot in used]
        queues = map(self._queues.count_of, names)
        return [TopicFigures(*of) for of in zip(names, *columns, queues, strict=True)]

    def close(self) -> None:
        """Unmap the table of topics; no further look is possible."""
        self._table.close()
