"""What the compiled pulls know: those that Python's way has served, by all that is the same in each of their requests.

Implements: nothing of RocketMQ's, which checks each pull anew
What is known of a topic or a group is forgotten when it changes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from engine.board.queue_ends import NO_SLOT
from engine.front.frames.send_topics import hash_of
from engine.front.pulls.log_view import NO_UNITS, Queue, QueueFile
from engine.front.pulls.pull_words import KEY_BYTES_MAX, KEY_FIELDS, KNOWN_WORDS, NAMES, NO_OFFSET, KnownWord
from engine.protocol.pulling.subscription import TagFilter
from ipc.arrays import Bytes, Words
from store.queues.consume_queue import ENTRY_BYTES

ROWS, INDEX = 1 << 16, 1 << 17
KEYS_BYTES = 16 << 20
KEY_NAMES = frozenset(NAMES[:KEY_FIELDS])
INT = struct.Struct(">i")
LET_GO_MAX = 1000


class KnownPull(NamedTuple):
    """Result of Python's checks and its look at the queue; `fields` are those of the key."""

    code: int
    fields: Mapping[str, str]
    group: str
    queue: Queue
    tags: TagFilter
    flags: int
    where: QueueFile
    suggested: tuple[int, int]  # the broker to ask next; who is far behind
    group_flag: int
    topic_flag: int


def key_of(code: int, fields: Mapping[str, str]) -> bytes | None:
    """Return the kernel's key of a pull's fields; None where a field is not ASCII or the key is too long."""
    parts = [INT.pack(code)]
    for name in NAMES[:KEY_FIELDS]:
        text = fields.get(name)
        if text is None:
            parts.append(INT.pack(-1))
        elif not text.isascii():
            return None
        else:
            parts += (INT.pack(len(text)), text.encode())
    key = b"".join(parts)
    return key if len(key) <= KEY_BYTES_MAX else None


class KnownPulls:
    """A table of one front; full, it begins anew, and what is used comes back. A row is where its words begin."""

    def __init__(self) -> None:
        self.words: Words = np.zeros(ROWS * KNOWN_WORDS, np.int64)
        self.index: Words = np.zeros(INDEX, np.int64)
        self.keys: Bytes = np.zeros(KEYS_BYTES, np.uint8)
        self.seed = int.from_bytes(os.urandom(7))  # so that nobody can choose keys that lie in one place
        self.generation = 0  # of rows
        self._rows: dict[bytes, int] = {}
        self._pulls: dict[int, KnownPull] = {}  # by row; they keep what the kernels look at
        self._of_name: dict[tuple[str, str], set[int]] = {}
        self._unborn: dict[Queue, set[int]] = {}  # rows of queues that never had a message
        self._keys_end = 0
        self._begins = -1  # the log, when files were let go last

    def __getitem__(self, row: int) -> KnownPull:
        return self._pulls[row]

    @property
    def is_full(self) -> bool:
        """Whether the next one may find no room."""
        return len(self._rows) >= ROWS or self._keys_end + KEY_BYTES_MAX > KEYS_BYTES

    def clear(self) -> None:
        """Forget all pulls, and begin a new generation."""
        self.words[: len(self._rows) * KNOWN_WORDS] = self.index[:] = 0
        self._rows.clear()
        self._pulls.clear()
        self._of_name.clear()
        self._unborn.clear()
        self._keys_end = 0
        self.generation += 1

    def born(self, queue: Queue, slot: int) -> None:
        """A queue has its first message, and its end a place."""
        for row in self._unborn.pop(queue, ()):
            self.words[row + KnownWord.SLOT] = slot

    def forget(self, table: str, name: str) -> None:
        """Forget what a changed topic, or group, decided."""
        for row in self._of_name.get((table, name), ()):
            self.words[row + KnownWord.IS_USUAL] = 0
            self._drop_file(row)

    def let_go(self, begins: int) -> None:
        """Unmap files of queues not pulled since the log begins at `begins`, some in each call: they may be deleted."""
        if begins == self._begins:
            return
        rows = self.words[: len(self._rows) * KNOWN_WORDS].reshape(-1, KNOWN_WORDS)
        is_old = (rows[:, KnownWord.BEGINS] != begins) & (rows[:, KnownWord.FILE_UNITS] > 0)
        old: list[int] = np.flatnonzero(is_old)[: LET_GO_MAX + 1].tolist()
        for number in old[:LET_GO_MAX]:
            self._drop_file(number * KNOWN_WORDS)
        if len(old) <= LET_GO_MAX:
            self._begins = begins

    def _drop_file(self, row: int) -> None:
        """Unmap the file of a queue: a deleted one would keep its room."""
        known = self._pulls[row]
        self.words[row + KnownWord.FILE_UNITS] = 0
        self._pulls[row] = known._replace(where=known.where._replace(units=NO_UNITS))

    def learn(self, key: bytes, known: KnownPull, names: Mapping[str, str]) -> None:
        """Pulls with this key are served so, until one of the `names`, by table, changes. There is room."""
        row = self._rows.get(key)
        if row is None:
            row = self._enter(key)
        words, where, file = self.words, known.where, known.where.units
        values = {
            KnownWord.SLOT: where.slot, KnownWord.BEGINS: where.begins, KnownWord.MINIMUM: where.minimum,
            KnownWord.FILE_FIRST: where.first, KnownWord.FILE_UNITS: len(file) // ENTRY_BYTES,
            KnownWord.FILE_AT: file.ctypes.data, KnownWord.TAKES_ALL: known.tags.takes_all,
            KnownWord.CODES_AT: known.tags.codes.ctypes.data, KnownWord.CODES: len(known.tags.codes),
            KnownWord.SUGGESTED: known.suggested[0], KnownWord.SUGGESTED_BEHIND: known.suggested[1],
            KnownWord.GROUP_FLAG: known.group_flag, KnownWord.TOPIC_FLAG: known.topic_flag,
            KnownWord.FLAGS: known.flags, KnownWord.IS_USUAL: 1,
        }  # fmt: skip
        for word, value in values.items():
            words[row + word] = value
        self._pulls[row] = known
        if where.slot == NO_SLOT:
            self._unborn.setdefault(known.queue, set()).add(row)
        for each in names.items():
            self._of_name.setdefault(each, set()).add(row)

    def _enter(self, key: bytes) -> int:
        """Add a row for the key, not usual yet; return the row."""
        number = len(self._rows)
        row = self._rows[key] = number * KNOWN_WORDS
        end = self._keys_end + len(key)
        self.keys[self._keys_end : end] = np.frombuffer(key, np.uint8)
        self.words[row + KnownWord.KEY_AT], self.words[row + KnownWord.KEY_BYTES] = self._keys_end, len(key)
        self.words[row + KnownWord.COMMIT] = NO_OFFSET
        self._keys_end = end
        place = hash_of(key, self.seed) & INDEX - 1
        while self.index[place]:
            place = place + 1 & INDEX - 1
        self.index[place] = number + 1
        return row
