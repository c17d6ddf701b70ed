"""How far consumers are, and who holds which queue, in shared memory: the clients role comes back with it when it dies.

Implements: nothing of RocketMQ's, whose file is some seconds old when its broker dies
Written by the clients role alone; any process may read. A row counts while its first word says so: that word is stored
last when a row is made, and first when it is given up. Every change is here before it is answered.

Region "clients": the words of `TableWord` | offsets, three words each: offset (NONE: a free row), topic and group as
numbers of names, queue id | locks, four words each: when it was renewed (monotonic ms; 0: a free row), topic and group,
broker's name and client, queue id | names, 33 words each: bytes, text. The file is as long as all need, and has blocks
for the `RESERVED` first ones of each: a step more whenever those are used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.protocol.clients.locks import LOCKS_MAX, Lock
from engine.protocol.remoting.places import Place
from engine.protocol.tables.consumer_offsets import QUEUES_MAX
from engine.protocol.tables.offset_journal import Key
from engine.shared_memory.clients.name_rows import NAME_BYTES_MAX, NameRow, texts_of
from engine.shared_memory.clients.offset_rows import NONE, NewRows, OffsetRow, by_topic_and_group
from ipc.arrays import Words
from ipc.compiled.atomics import publish
from ipc.errors import RegionNoSpace
from ipc.region import WORD_BYTES, Region
from store.files.file_state import FileState
from store.names import CONSUMER_OFFSETS, DELAY_OFFSETS


# Words and rows of `engine.shared_memory.clients.client_table`, by their names.
class TableWord(IntEnum):
    """The words before the rows."""

    FILLED = 0  # whether the file's offsets are here, or what came after them
    IS_OVERFULL = 1
    OFFSETS_USED = 2
    OFFSETS_RESERVED = 3
    LOCKS_USED = 4
    LOCKS_RESERVED = 5
    NAMES_USED = 6
    NAMES_RESERVED = 7
    OFFSETS_FILE = 8  # the state of consumerOffset.json as the role read it, or wrote it last; all 0: there was none
    DELAYS_FILE = 11  # of delayOffset.json
    ROWS = 14  # the first row's


class LockRow(IntEnum):
    """Words of a row in the table of locks."""

    UPDATED_MS = 0
    TOPIC_AND_GROUP = 1
    BROKER_AND_CLIENT = 2
    QUEUE_ID = 3
    WORDS = 4


class Rows(NamedTuple):
    """Place and size of the rows of one kind."""

    at: int  # words
    words: int
    capacity: int
    used: int  # which words say how many
    reserved: int


REGION_KIND, LAYOUT = "clients", 2
FILE = "clients"
NAMES_MAX = 1 << 18
STEP = 4096  # rows
LOW_HALF = (1 << 32) - 1

FILES = {
    CONSUMER_OFFSETS: slice(TableWord.OFFSETS_FILE, TableWord.DELAYS_FILE),
    DELAY_OFFSETS: slice(TableWord.DELAYS_FILE, TableWord.ROWS),
}
OFFSETS = Rows(
    int(TableWord.ROWS), int(OffsetRow.WORDS), QUEUES_MAX, int(TableWord.OFFSETS_USED), int(TableWord.OFFSETS_RESERVED)
)
LOCKS = Rows(
    OFFSETS.at + OFFSETS.words * OFFSETS.capacity,
    int(LockRow.WORDS),
    LOCKS_MAX,
    int(TableWord.LOCKS_USED),
    int(TableWord.LOCKS_RESERVED),
)
NAMES = Rows(
    LOCKS.at + LOCKS.words * LOCKS.capacity,
    int(NameRow.WORDS),
    NAMES_MAX,
    int(TableWord.NAMES_USED),
    int(TableWord.NAMES_RESERVED),
)
WORDS = NAMES.at + NAMES.words * NAMES.capacity


def create(directory: Path) -> None:
    """The table of a broker that begins; only the supervisor makes it. Raises RegionNoSpace."""
    size = WORDS * WORD_BYTES
    Region.create(
        directory / FILE, size, kind=REGION_KIND, layout=LAYOUT, reserved_bytes=TableWord.ROWS * WORD_BYTES
    ).close()


class ClientTable:
    """The table, as a reader has it."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._words = region.words
        self._bytes = region.bytes
        self._read_names: dict[int, str] = {}  # names may be others by the next look

    @classmethod
    def attach(cls, directory: Path) -> ClientTable:
        """Attach to a running broker's client table. Raises RegionMissing, RegionMismatch."""
        return cls(Region.attach(directory / FILE, kind=REGION_KIND, layout=LAYOUT))

    @property
    def is_filled(self) -> bool:
        """Whether a clients role has been here before."""
        return bool(self._words[TableWord.FILLED])

    @property
    def is_overfull(self) -> bool:
        """Whether the file knows offsets that found no room here."""
        return bool(self._words[TableWord.IS_OVERFULL])

    def file_state(self, name: str) -> FileState | None:
        """Return the state of one of FILES that the clients role noted last; None when it noted none."""
        modified, inode, size = self._words[FILES[name]].tolist()
        return (modified, inode, size) if modified else None

    def stands_for(self, file: FileState | None) -> bool:
        """Whether all that consumerOffset.json says in this state is here, but for what has changed since."""
        if file is None or self.is_overfull or not self.is_filled:
            return False
        return self.file_state(CONSUMER_OFFSETS) == file

    def is_whole(self) -> bool:
        """Whether rows and names are as the table's writer leaves them, whenever it dies."""
        words = self._words
        if len(words) != WORDS or any(
            not 0 <= words[of.used] <= words[of.reserved] <= of.capacity for of in (OFFSETS, LOCKS, NAMES)
        ):
            return False
        lengths = words[NAMES.at : NAMES.at + int(words[NAMES.used]) * NAMES.words : NAMES.words]
        if len(lengths) and not 0 <= lengths.min() <= lengths.max() <= NAME_BYTES_MAX:
            return False
        for of, free, pairs in ((OFFSETS, NONE, 1), (LOCKS, 0, 2)):
            rows = words[of.at : of.at + int(words[of.used]) * of.words].reshape(-1, of.words)
            named = rows[rows[:, 0] != free, 1 : 1 + pairs]
            if len(named) and max((named >> 32).max(), (named & LOW_HALF).max()) >= len(lengths):
                return False
            if (named < 0).any():
                return False
        return True

    def offsets(self) -> dict[Key, dict[int, int]]:
        """Return the committed offsets by (topic, group), then by queue id."""
        table: dict[Key, dict[int, int]] = {}
        rows = self._read(OFFSETS)
        for word, queue_ids, numbers in by_topic_and_group(rows):
            offsets = rows[numbers, OffsetRow.OFFSET].tolist()
            table.setdefault(self._pair(word), {}).update(zip(queue_ids, offsets, strict=True))
        return table

    def locks(self) -> Iterator[tuple[str, Place, Lock]]:
        """Group, queue, and whose it is since when."""
        for row in self._rows(LOCKS):
            if row[LockRow.UPDATED_MS]:
                topic, group = self._pair(row[LockRow.TOPIC_AND_GROUP])
                broker, client = self._pair(row[LockRow.BROKER_AND_CLIENT])
                queue = Place(topic, broker, row[LockRow.QUEUE_ID])
                yield group, queue, Lock(client, row[LockRow.UPDATED_MS])

    def _rows(self, of: Rows) -> list[list[int]]:
        rows: list[list[int]] = self._read(of).tolist()
        return rows

    def _read(self, of: Rows) -> Words:
        """The rows as they are now."""
        self._read_names = {}
        used = int(self._words[of.used])
        return self._words[of.at : of.at + used * of.words].reshape(used, of.words).copy()

    def _pair(self, word: int) -> tuple[str, str]:
        return self._name(word >> 32), self._name(word & LOW_HALF)

    def _name(self, number: int) -> str:
        """Return the name as it was at the first look since the rows were read."""
        name = self._read_names.get(number)
        if name is None:
            name = self._read_names[number] = self._text(number)
        return name

    def _text(self, number: int) -> str:
        at = NAMES.at + number * NAMES.words
        count = min(int(self._words[at]), NAME_BYTES_MAX)
        start = (at + NameRow.TEXT) * WORD_BYTES
        return self._bytes[start : start + count].tobytes().decode(errors="replace")

    def close(self) -> None:
        """Unmap the region; the table cannot be read afterwards."""
        self._words = np.empty(0, np.int64)
        self._bytes = np.empty(0, np.uint8)
        self._region.close()


class Full(Exception):
    """Raised when there is no row, or no memory, for one more."""


class ClientJournal(ClientTable):
    """The table, as the clients role writes it."""

    def __init__(self, region: Region) -> None:
        super().__init__(region)
        self._numbers: dict[str, int] = {}  # of names
        self._uses: dict[int, int] = {}  # of a name, by rows
        self._free: dict[Rows, list[int]] = {OFFSETS: [], LOCKS: [], NAMES: []}
        self._offset_rows: dict[Key, dict[int, int]] = {}
        self._lock_rows: dict[tuple[str, Place], int] = {}
        self._find_rows()

    @classmethod
    def attach(cls, directory: Path) -> ClientJournal:
        """Attach to write. Only one process at a time may. Raises RegionMissing, RegionMismatch."""
        return cls(Region.attach(directory / FILE, kind=REGION_KIND, layout=LAYOUT, writable=True))

    def _find_rows(self) -> None:
        rows = self._read(OFFSETS)
        self._read_names = dict(enumerate(texts_of(self._read(NAMES))))
        self._free[OFFSETS] = np.flatnonzero(rows[:, OffsetRow.OFFSET] == NONE).tolist()
        for word, queue_ids, numbers in by_topic_and_group(rows):
            of_key = self._offset_rows.setdefault(self._used_pair(word, len(queue_ids)), {})
            of_key.update(zip(queue_ids, numbers, strict=True))
        for number, row in enumerate(self._rows(LOCKS)):
            if not row[LockRow.UPDATED_MS]:
                self._free[LOCKS].append(number)
                continue
            topic, group = self._used_pair(row[LockRow.TOPIC_AND_GROUP])
            broker, _client = self._used_pair(row[LockRow.BROKER_AND_CLIENT])
            self._lock_rows[group, Place(topic, broker, row[LockRow.QUEUE_ID])] = number
        used = int(self._words[NAMES.used])
        self._free[NAMES] = [number for number in range(used) if number not in self._uses]

    def offsets(self) -> dict[Key, dict[int, int]]:
        """Return what `ClientTable.offsets` returns, from the rows known here: much less work where they are many."""
        numbers = list(chain.from_iterable(of_key.values() for of_key in self._offset_rows.values()))
        offsets = iter(self._words[OFFSETS.at + np.array(numbers, np.int64) * OFFSETS.words].tolist())
        return {key: dict(zip(of_key, offsets, strict=False)) for key, of_key in self._offset_rows.items()}

    def _used_pair(self, word: int, rows: int = 1) -> tuple[str, str]:
        names = self._pair(word)
        for number, name in zip((word >> 32, word & LOW_HALF), names, strict=True):
            self._numbers[name] = number
            self._uses[number] = self._uses.get(number, 0) + rows
        return names

    def fill(self, offsets: dict[Key, dict[int, int]]) -> None:
        """Take the offsets of the file, at a broker's start."""
        if not self._fill_at_once(offsets):
            for key, of_key in offsets.items():
                for queue_id, offset in of_key.items():
                    self.set_offset(key, queue_id, offset)
        publish(self._words, int(TableWord.FILLED), 1)

    def _fill_at_once(self, offsets: dict[Key, dict[int, int]]) -> bool:
        """False where rows are there already, or there is no room for all."""
        free, rows, wanted = self._free[OFFSETS], NewRows(), sum(map(len, offsets.values()))
        if self._offset_rows:
            return False
        try:
            while len(free) < wanted:
                self._add_rows(OFFSETS)
        except Full:
            return False
        for key, of_key in offsets.items():
            if not (count := len(of_key)):
                continue
            try:
                names = self._named(key)
            except Full:
                self._words[TableWord.IS_OVERFULL] = 1
                continue
            for name in key:
                self._uses[self._numbers[name]] += count - 1
            numbers = free[len(free) - count :]
            del free[len(free) - count :]
            self._offset_rows[key] = dict(zip(of_key, numbers, strict=True))
            rows.add(names, numbers, of_key)
        rows.write(self._words, OFFSETS.at)
        return True

    def note_file(self, name: str, state: FileState | None) -> None:
        """Note the state of a file that says the same as these tables. A crash leaves a state that no file has."""
        if name in FILES:
            self._words[FILES[name]] = state or (0, 0, 0)

    def set_offset(self, key: Key, queue_id: int, offset: int) -> bool:
        """The group is there in that queue; False where there is no room for it, and nothing has changed."""
        number = self._offset_rows.get(key, {}).get(queue_id)
        if number is None:
            try:
                number = self._new_row(OFFSETS, key)
            except Full:
                self._words[TableWord.IS_OVERFULL] = 1
                return False
            self._words[OFFSETS.at + number * OFFSETS.words + OffsetRow.QUEUE_ID] = queue_id
            self._offset_rows.setdefault(key, {})[queue_id] = number
        # The offset last: a row without one does not count.
        publish(self._words, OFFSETS.at + number * OFFSETS.words, max(offset, NONE + 1))
        return True

    def clear_offset(self, key: Key, queue_id: int) -> None:
        """The group is nowhere in that queue."""
        number = self._offset_rows.get(key, {}).pop(queue_id, None)
        if number is None:
            return
        if not self._offset_rows[key]:
            del self._offset_rows[key]
        publish(self._words, OFFSETS.at + number * OFFSETS.words, NONE)
        self._free[OFFSETS].append(number)
        self._unname(key)

    def set_lock(self, group: str, queue: Place, lock: Lock) -> bool:
        """Give a queue's lock to a client; False where there is no room for it, and nothing has changed."""
        owner, number = (queue.broker, lock.client_id), self._lock_rows.get((group, queue))
        try:
            if number is None:
                owner_word = self._named(owner)
                number = self._new_row(LOCKS, (queue.topic, group), owner)
                self._words[LOCKS.at + number * LOCKS.words + LockRow.QUEUE_ID] = queue.queue_id
                self._words[LOCKS.at + number * LOCKS.words + LockRow.BROKER_AND_CLIENT] = owner_word
                self._lock_rows[group, queue] = number
            elif (before := self._owner(number)) != owner:
                self._words[LOCKS.at + number * LOCKS.words + LockRow.BROKER_AND_CLIENT] = self._named(owner)
                self._unname(before)
        except Full:
            return False
        publish(self._words, LOCKS.at + number * LOCKS.words, max(1, lock.updated_ms))
        return True

    def _owner(self, number: int) -> tuple[str, str]:
        self._read_names = {}
        return self._pair(int(self._words[LOCKS.at + number * LOCKS.words + LockRow.BROKER_AND_CLIENT]))

    def clear_lock(self, group: str, queue: Place) -> None:
        """Release a queue's lock, if the group holds one."""
        number = self._lock_rows.pop((group, queue), None)
        if number is None:
            return
        at = LOCKS.at + number * LOCKS.words
        owner = self._owner(number)
        publish(self._words, at, 0)
        self._free[LOCKS].append(number)
        self._unname((queue.topic, group))
        self._unname(owner)

    # rows and names

    def _new_row(self, of: Rows, names: tuple[str, str], others: tuple[str, str] | None = None) -> int:
        """A row of a topic and group; it counts as free still. Raises Full, and then `others` are used no more."""
        try:
            word = self._named(names)
            try:
                number = self._free_row(of)
            except Full:
                self._unname(names)
                raise
        except Full:
            self._unname(others or ())
            raise
        self._words[of.at + number * of.words + OffsetRow.TOPIC_AND_GROUP] = word
        return number

    def _free_row(self, of: Rows) -> int:
        """A row that nobody has. Raises Full."""
        if not self._free[of]:
            self._add_rows(of)
        return self._free[of].pop()

    def _add_rows(self, of: Rows) -> None:
        """A step of rows more, all of them free."""
        used = int(self._words[of.used])
        end = min(used + STEP, of.capacity)
        if end == used:
            raise Full
        if end > int(self._words[of.reserved]):
            try:
                self._region.reserve((of.at + used * of.words) * WORD_BYTES, (end - used) * of.words * WORD_BYTES)
            except RegionNoSpace:
                raise Full from None
            self._words[of.reserved] = end
        if of is OFFSETS:
            self._words[of.at + used * of.words : of.at + end * of.words : of.words] = NONE
        publish(self._words, of.used, end)
        self._free[of] += range(end - 1, used - 1, -1)

    def _named(self, names: tuple[str, str]) -> int:
        """Return both names' numbers as one word, and count their use. Raises Full."""
        first = self._use(names[0])
        try:
            return first << 32 | self._use(names[1])
        except Full:
            self._drop(names[0])
            raise

    def _use(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            text = name.encode("utf-8", "replace")
            if len(text) > NAME_BYTES_MAX:
                raise Full
            number = self._free_row(NAMES)
            at = NAMES.at + number * NAMES.words
            self._words[at] = len(text)
            start = (at + NameRow.TEXT) * WORD_BYTES
            self._bytes[start : start + len(text)] = np.frombuffer(text, np.uint8)
            self._numbers[name] = number
        self._uses[number] = self._uses.get(number, 0) + 1
        return number

    def _unname(self, names: Iterable[str]) -> None:
        for name in names:
            self._drop(name)

    def _drop(self, name: str) -> None:
        number = self._numbers[name]
        self._uses[number] -= 1
        if not self._uses[number]:
            del self._uses[number], self._numbers[name]
            self._free[NAMES].append(number)
