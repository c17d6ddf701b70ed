"""Topics and queues that the compiled sends know: put in when one was used, taken out when a topic changes."""

from __future__ import annotations

import os

import numpy as np

from engine.front.frames.send_words import SLOT_UNKNOWN, TOPIC_WORDS, TopicWord
from ipc.arrays import Bytes, Words
from ipc.compiled.texts import seeded_hash
from store.message.record import MAX_TOPIC_BYTES

ROWS, TOPICS_MAX = 16_384, 8192
NAMES_BYTES = TOPICS_MAX * MAX_TOPIC_BYTES
QUEUES_MAX = 1 << 17  # of all topics in the table


class SendTopics:
    """An open-addressed table; full, it begins anew, and what is used comes back."""

    def __init__(self) -> None:
        self.words: Words = np.zeros(ROWS * TOPIC_WORDS, np.int64)
        self.names: Bytes = np.zeros(NAMES_BYTES, np.uint8)
        self.slots: Words = np.full(QUEUES_MAX, SLOT_UNKNOWN, np.int64)
        self.seed = int.from_bytes(os.urandom(7))  # so that nobody can choose names that lie in one place
        self._rows: dict[str, int] = {}
        self._name_end = self._slot_end = 0

    def clear(self) -> None:
        """Forget all topics and queues."""
        self.words[:], self.slots[:] = 0, SLOT_UNKNOWN
        self._rows.clear()
        self._name_end = self._slot_end = 0

    def forget(self, topic: str | None) -> None:
        """A topic is another now; None: all may be."""
        if topic is None:
            self.clear()
        elif (row := self._rows.get(topic)) is not None:
            self.words[row + TopicWord.QUEUES] = 0

    def learn(self, topic: str, queues: int, queue_id: int, slot: int) -> None:
        """A topic on the fast path takes sends to queues below `queues`; one of them has that slot."""
        name = topic.encode()
        if not 0 <= queue_id < queues <= QUEUES_MAX or not 0 < len(name) <= MAX_TOPIC_BYTES or slot < 0:
            return
        row = self._rows.get(topic)
        if row is None or self.words[row + TopicWord.QUEUES] != queues:
            row = self._enter(topic, name, queues)
        self.slots[self.words[row + TopicWord.SLOTS_AT] + queue_id] = slot

    def _enter(self, topic: str, name: bytes, queues: int) -> int:
        if len(self._rows) >= TOPICS_MAX or self._slot_end + queues > QUEUES_MAX:
            self.clear()
        row = self._rows.get(topic)
        if row is None:
            end = self._name_end + len(name)
            self.names[self._name_end : end] = np.frombuffer(name, np.uint8)
            row = self._rows[topic] = self._free_row(len(name))
            self.words[row + TopicWord.NAME_AT], self._name_end = self._name_end, end
            self.words[row + TopicWord.NAME_BYTES] = len(name)
        self.words[row + TopicWord.SLOTS_AT] = self._slot_end
        self._slot_end += queues
        self.words[row + TopicWord.QUEUES] = queues
        return row

    def _free_row(self, name_bytes: int) -> int:
        """Return the row for the name at the end of those that are there."""
        row = int(seeded_hash(self.names, self._name_end, name_bytes, self.seed)) & ROWS - 1
        while self.words[row * TOPIC_WORDS + TopicWord.NAME_BYTES]:
            row = row + 1 & ROWS - 1
        return row * TOPIC_WORDS
