"""The queues of a store as a check needs them: a table for the kernel, and which entries a record was found for.

All entries' marks lie in one array, a byte for each; the queue files are mapped and known to the kernel by address.
Several checks run beside each other: each has the table for itself, because records may name queues without files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ipc.arrays import Words
from store.errors import QueueFileMismatch
from store.message.delay import SCHEDULE_TOPIC
from store.message.properties import java_text
from store.queues.consume_queue import ENTRY_BYTES, PREFILL_SIZE, ConsumeQueue, Entries, queue_directories
from store.verify import check_kernel as kernel
from store.verify.check_words import Count, Queue, QueueKind
from store.verify.finding import REBUILD, Finding

SPARE_QUEUES = 64
NAME_PADDING = 64  # the kernel compares eight bytes a step
QueueKey = tuple[str, int]


class CheckedQueue:
    """One queue with its files mapped."""

    def __init__(self, topic: str, queue_id: int, queue: ConsumeQueue) -> None:
        self.topic, self.queue_id, self.queue = topic, queue_id, queue
        bases = queue.bases()
        self.first = bases[0] // ENTRY_BYTES if bases else 0
        self.count = queue.max_offset - self.first if bases else 0
        self.per_file = queue.file_bytes // ENTRY_BYTES
        self.files = [queue.map_file(base) for base in bases]
        self.matched: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)

    def entry(self, queue_offset: int) -> np.void | None:
        """The entry of that message; None outside of the queue."""
        index = queue_offset - self.first
        if not 0 <= index < self.count:
            return None
        at: np.void = self.files[index // self.per_file][index % self.per_file]
        return at

    def parts(self) -> Iterator[tuple[int, Entries]]:
        """(number of the first, entries) of each file, up to the queue's end."""
        for number, entries in enumerate(self.files):
            start = number * self.per_file
            if start < self.count:
                yield start, entries[: self.count - start]


class Queues:
    """All queues of plain entries; `findings` says which could not be opened."""

    def __init__(self, consumequeue: Path, batch_topics: frozenset[str]) -> None:
        self.by_key: dict[QueueKey, CheckedQueue] = {}
        self.findings: list[Finding] = []
        for topic, queue_id, path in queue_directories(consumequeue):
            if topic in batch_topics:
                continue
            try:
                self.by_key[topic, queue_id] = CheckedQueue(topic, queue_id, ConsumeQueue.open(path))
            except QueueFileMismatch as error:
                self.findings.append(Finding("QUEUE_FILES", str(path), str(error), REBUILD))
        self.all = list(self.by_key.values())
        self.entries = sum(queue.count for queue in self.all)
        self.matched = np.zeros(max(self.entries, 1), np.uint8)
        addresses = [entries.ctypes.data for queue in self.all for entries in queue.files]
        self.addresses: Words = np.array(addresses or [0], np.int64)
        start = 0
        for queue in self.all:
            queue.matched = self.matched[start : start + queue.count]
            start += queue.count


class QueueTable:
    """The kernel's view of the queues, for one check at a time."""

    def __init__(self, queues: Queues, batch_topics: frozenset[str]) -> None:
        self._queues, self._batch_topics = queues, batch_topics
        self.keys: list[QueueKey] = []
        self._names = b""
        self.rows: Words = np.zeros((len(queues.all) + SPARE_QUEUES, len(Queue)), np.int64)
        files_at = matched_at = 0
        for queue in queues.all:
            row = self._new_row(queue.topic.encode("utf-8", "surrogateescape"), queue.queue_id)
            row[Queue.KIND] = QueueKind.SCHEDULE if queue.topic == SCHEDULE_TOPIC else QueueKind.PLAIN
            row[Queue.FIRST], row[Queue.COUNT], row[Queue.PER_FILE] = queue.first, queue.count, queue.per_file
            row[Queue.FILES_AT], row[Queue.MATCHED_AT] = files_at, matched_at
            files_at, matched_at = files_at + len(queue.files), matched_at + queue.count
        self._index()

    def _new_row(self, name: bytes, queue_id: int) -> Words:
        number = len(self.keys)
        if number == len(self.rows):
            self.rows = np.concatenate((self.rows, np.zeros_like(self.rows)))
        self.keys.append((java_text(name), queue_id))
        row: Words = self.rows[number]
        row[Queue.NAME_AT], row[Queue.NAME_BYTES], row[Queue.QUEUE_ID] = len(self._names), len(name), queue_id
        row[Queue.PER_FILE] = 1
        self._names += name
        return row

    def _index(self) -> None:
        self.names = np.frombuffer(self._names + bytes(NAME_PADDING), np.uint8)
        self.slots: Words = np.zeros(1 << (4 * len(self.rows) - 1).bit_length(), np.int64)
        for number in range(len(self.keys)):
            self._enter(number)
        self.counts: Words = np.zeros((len(self.rows), len(Count)), np.int64)

    def _enter(self, number: int) -> None:
        at, count, queue_id = (
            int(self.rows[number, column]) for column in (Queue.NAME_AT, Queue.NAME_BYTES, Queue.QUEUE_ID)
        )
        place = kernel.find_queue(self.names, at, count, queue_id, self.slots, self.rows, self.names)
        if place < 0:
            self.slots[-1 - place] = number + 1

    def add(self, name: bytes, queue_id: int) -> None:
        """A queue that records name and that has no files of plain entries."""
        counts, known = self.counts, len(self.keys)
        row = self._new_row(name, queue_id)
        row[Queue.KIND] = QueueKind.BATCH if java_text(name) in self._batch_topics else QueueKind.ABSENT
        self._index()
        self.counts[:known] = counts[:known]

    def find(self, topic: str, queue_id: int) -> CheckedQueue | None:
        """The queue of that name."""
        return self._queues.by_key.get((topic, queue_id))

    def queue_of(self, number: int) -> CheckedQueue | None:
        """The queue of that row."""
        return self._queues.by_key.get(self.keys[number])


def unmatched(queue: CheckedQueue, min_offset: int, limit: int) -> Iterator[tuple[int, np.void]]:
    """(number, entry) of those that point into the log below `limit`, and that no record was found for."""
    for start, entries in queue.parts():
        open_ones = np.flatnonzero(queue.matched[start : start + len(entries)] == 0)
        if not len(open_ones):
            continue
        chosen = entries[open_ones]
        offsets = chosen["physical_offset"].astype(np.int64)
        own = (chosen["size"] != PREFILL_SIZE) & (offsets >= min_offset) & (offsets < limit)
        for index in np.flatnonzero(own):
            yield start + int(open_ones[index]), chosen[index]


def misplaced_prefill(queue: CheckedQueue) -> int | None:
    """The first entry that should point nowhere, or come before all others, and does not; by its queue offset."""
    seen_own = False
    for start, entries in queue.parts():
        nowhere = entries["size"] == PREFILL_SIZE
        if not nowhere.any():
            seen_own = True
            continue
        leading = len(nowhere) if nowhere.all() else int(nowhere.argmin())
        wrong = nowhere & ((entries["physical_offset"] != 0) | (entries["tags_code"] != 0))
        wrong[0 if seen_own else leading :] |= nowhere[0 if seen_own else leading :]
        if wrong.any():
            return queue.first + start + int(wrong.argmax())
        seen_own = leading < len(nowhere)
    return None
