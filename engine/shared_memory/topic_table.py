"""The topic table: messages and bytes of each topic since the broker's start, in shared memory.

Implements: putMessageTopicTimesTotal, putMessageTopicSizeTotal of StoreStatsService (spec: store-formats, 20)
The dispatcher counts what it passes, on a master and on a slave alike. A killed one passes some records again, so every
topic says up to which offset it is counted, and says it in one word with its counts: a slot has two copies of them, the
version tells which one holds. What finds no slot of its own is counted in slot 0.

Region "topics": word 0 slots, word 1 used | from word 16, 16 words a slot: 0 version, 1 bytes of the name, 2-4 and 8-10
the copies (messages, bytes, counted up to offset) | names, 256 bytes each. A slot counts once `used` has passed it.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from contextlib import closing
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ipc.arrays import Bytes, Words
from ipc.compiled.atomics import load_acquire, publish, release_fence, store_release
from ipc.compiled.kernels import bare_kernel, inlined, kernel
from ipc.compiled.texts import name_hash, same_bytes
from ipc.region import Region
from store.message.properties import java_text
from store.message.rows_kernel import Row, Scanned

REGION_KIND, LAYOUT, TOPICS_FILE = "topics", 1, "topics"
SLOTS = 4096
HEADER_WORDS = SLOT_WORDS = 16
COPY_WORDS = 6
NAME_BYTES = 256
OTHERS = b"(other topics)"


class TopicsWord(IntEnum):
    """The words of the region before its slots."""

    SLOTS = 0
    USED = 1


class TopicWord(IntEnum):
    """The words of a slot; COPIES: the first copy of its TopicSums."""

    VERSION = 0
    NAME_BYTES = 1
    COPIES = 2


class TopicSum(IntEnum):
    """Words of a topic's sums."""

    MESSAGES = 0
    BYTES = 1
    COUNTED_TO = 2


class TopicCount(NamedTuple):
    """Messages and bytes of one topic since the broker's start."""

    topic: str
    messages: int
    bytes: int


class Topics(NamedTuple):
    """The region's words and names, and the memory of the process that counts."""

    words: Words
    names: Bytes
    table: Words  # a hash table of slot + 1
    sums: Words  # a row of `TopicSum` for each slot; zeros before and after `count_rows`
    changed: Words  # how many slots have sums, and which


@inlined
def _slot_at(slot: int) -> int:
    """Return the index of the first word of a slot."""
    return HEADER_WORDS + slot * SLOT_WORDS


@inlined
def _copy_of(slot: int, version: int) -> int:
    """Return where the copy begins that a version of the slot holds."""
    return HEADER_WORDS + slot * SLOT_WORDS + TopicWord.COPIES + (version & 1) * COPY_WORDS


@inlined
def _is_named(names: Bytes, slot: int, words: Words, array: Bytes, at: int, length: int) -> bool:
    is_as_long = words[_slot_at(slot) + TopicWord.NAME_BYTES] == length
    return is_as_long and same_bytes(names, slot * NAME_BYTES, array, at, length)


@bare_kernel
def _commit(words: Words, sums: Words, changed: Words) -> None:
    """Add the sums to their topics, each topic by one word, and clear them."""
    for number in range(1, changed[0] + 1):
        slot = changed[number]
        version_at = _slot_at(slot) + TopicWord.VERSION
        version = words[version_at]
        now, then = _copy_of(slot, version), _copy_of(slot, version + 1)
        release_fence()  # the version before this one is seen by who reads what is written now
        words[then + TopicSum.MESSAGES] = words[now + TopicSum.MESSAGES] + sums[slot, TopicSum.MESSAGES]
        words[then + TopicSum.BYTES] = words[now + TopicSum.BYTES] + sums[slot, TopicSum.BYTES]
        words[then + TopicSum.COUNTED_TO] = sums[slot, TopicSum.COUNTED_TO]
        store_release(words, version_at, version + 1)
        for column in range(sums.shape[1]):
            sums[slot, column] = 0
    changed[0] = 0


@bare_kernel
def count_rows(topics: Topics, scanned: Scanned, first: int, until: int) -> int:
    """Add rows [first, until) to their topics; `until`, or the first row whose topic has no slot yet."""
    words, names, table, sums, changed = topics.words, topics.names, topics.table, topics.sums, topics.changed
    array, rows, slot, is_known = scanned.array, scanned.rows, 0, False
    for index in range(first, until):
        at, length = rows[index, Row.TOPIC_AT], rows[index, Row.TOPIC_BYTES]
        if not is_known or not _is_named(names, slot, words, array, at, length):
            place = name_hash(array, at, length, 0) & (table.size - 1)
            while table[place] and not _is_named(names, table[place] - 1, words, array, at, length):
                place = (place + 1) & (table.size - 1)
            if not table[place] and words[TopicsWord.USED] < words[TopicsWord.SLOTS]:
                _commit(words, sums, changed)
                return index
            slot, is_known = max(table[place] - 1, 0), True
        copy = _copy_of(slot, words[_slot_at(slot) + TopicWord.VERSION])
        offset = scanned.base_offset + rows[index, Row.POSITION]
        if offset >= words[copy + TopicSum.COUNTED_TO]:
            if sums[slot, TopicSum.MESSAGES] == 0:
                changed[0] += 1
                changed[changed[0]] = slot
            sums[slot, TopicSum.MESSAGES] += 1
            sums[slot, TopicSum.BYTES] += rows[index, Row.SIZE]
            sums[slot, TopicSum.COUNTED_TO] = offset + rows[index, Row.SIZE]
    _commit(words, sums, changed)
    return until


@kernel
def enter(table: Words, name: Bytes, slot: int) -> None:
    """Enter a name into the hash table."""
    place = name_hash(name, 0, name.size, 0) & (table.size - 1)
    while table[place]:
        place = (place + 1) & (table.size - 1)
    table[place] = slot + 1


@kernel
def copy_counts(words: Words, counts: Words) -> None:
    """The messages and bytes of the first slots, each as of one moment, into int64[slots, 2]."""
    for slot in range(counts.shape[0]):
        version_at = _slot_at(slot) + TopicWord.VERSION
        version = -1
        while version != load_acquire(words, version_at):
            version = load_acquire(words, version_at)
            copy = _copy_of(slot, version)
            counts[slot, TopicSum.MESSAGES] = load_acquire(words, copy + TopicSum.MESSAGES)
            counts[slot, TopicSum.BYTES] = load_acquire(words, copy + TopicSum.BYTES)


class TopicTable:
    """All topics that were given messages; the dispatcher writes, anybody reads."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._words: Words = region.words
        self._slots = int(region.words[TopicsWord.SLOTS])
        names_at = (HEADER_WORDS + self._slots * SLOT_WORDS) * 8
        self._names: Bytes = region.bytes[names_at : names_at + self._slots * NAME_BYTES]
        self._table: Words = np.zeros(2 * self._slots, np.int64)  # slot + 1; the writer's own
        self._sums: Words = np.zeros((self._slots, len(TopicSum)), np.int64)
        self._changed: Words = np.zeros(1 + self._slots, np.int64)

    @classmethod
    def create(cls, directory: Path, slots: int = SLOTS) -> None:
        """The table of a broker that starts; made by the supervisor. `slots` is a power of two."""
        size = (HEADER_WORDS + slots * SLOT_WORDS) * 8 + slots * NAME_BYTES
        region = Region.create(directory / TOPICS_FILE, size, kind=REGION_KIND, layout=LAYOUT)
        region.words[TopicsWord.SLOTS] = slots
        table = cls(region)
        table._add(OTHERS)
        table.close()

    @classmethod
    def attach(cls, directory: Path, writable: bool = False) -> TopicTable:
        """The table of a running broker. Raises RegionMissing, RegionMismatch."""
        table = cls(Region.attach(directory / TOPICS_FILE, kind=REGION_KIND, layout=LAYOUT, writable=writable))
        if writable:
            for slot in range(int(table._words[TopicsWord.USED])):
                enter(table._table, table._name(slot), slot)
        return table

    def topics(self) -> Topics:
        """Return that on which `count_rows` works."""
        return Topics(self._words, self._names, self._table, self._sums, self._changed)

    def put(self, array: Bytes, base: int, rows: Words, count: int) -> None:
        """Count the first `count` rows of a scan of the segment at `base`; those counted before count once."""
        row, topics, scanned = 0, self.topics(), Scanned(array, base, rows)
        while row < count:
            row = count_rows(topics, scanned, row, count)
            if row < count:
                at, length = int(rows[row, Row.TOPIC_AT]), int(rows[row, Row.TOPIC_BYTES])
                self._add(array[at : at + length].tobytes())

    def read(self) -> list[TopicCount]:
        """Return every topic with messages, in the order of their first ones."""
        return [
            TopicCount(self._text(slot), messages, size)
            for slot, (messages, size) in enumerate(self.counts().tolist())
            if messages
        ]

    def counts(self) -> Words:
        """Messages and bytes by slot, as `TopicSum` numbers them; a topic keeps its slot."""
        counts = np.zeros((int(self._words[TopicsWord.USED]), 2), np.int64)
        copy_counts(self._words, counts)
        return counts

    def names_from(self, slot: int) -> list[str]:
        """The topics of that slot and of those behind it."""
        return [self._text(each) for each in range(slot, int(self._words[TopicsWord.USED]))]

    def totals(self) -> tuple[int, int]:
        """(messages, bytes) of all topics together."""
        messages, size = self.counts().sum(axis=0).tolist()
        return messages, size

    def close(self) -> None:
        """Unmap the region; the table is empty afterwards."""
        empty = np.empty(0, np.int64)
        self._words, self._names = empty, empty.view(np.uint8)
        self._region.close()

    def _text(self, slot: int) -> str:
        return java_text(self._name(slot).tobytes())

    def _name(self, slot: int) -> Bytes:
        length = int(self._words[HEADER_WORDS + slot * SLOT_WORDS + TopicWord.NAME_BYTES])
        return self._names[slot * NAME_BYTES : slot * NAME_BYTES + length]

    def _add(self, topic: bytes) -> None:
        """Give a topic its slot; there is one."""
        slot, name = int(self._words[TopicsWord.USED]), np.frombuffer(bytearray(topic), np.uint8)
        self._names[slot * NAME_BYTES : slot * NAME_BYTES + len(name)] = name
        self._words[HEADER_WORDS + slot * SLOT_WORDS + TopicWord.NAME_BYTES] = len(name)
        publish(self._words, int(TopicsWord.USED), slot + 1)
        enter(self._table, name, slot)


def counts_of(directory: Path) -> list[TopicCount]:
    """The counts of a running broker as they are now. Raises RegionMissing, RegionMismatch."""
    with closing(TopicTable.attach(directory)) as table:
        return table.read()
