"""Which transactions are decided, in shared memory: what one front has begun or done outlives it, and others see it.

Implements: nothing of RocketMQ's, which writes a transaction's message once for every copy of its half message
A half message that is asked about lies in its queue again, and a producer may end both copies. Region "decided" of each
front, written by it alone, read by the other fronts and by the transactions role.

Region: DecidedWord | ROWS rows of DecidedRow. Row n of all that were ever made is the one at n % ROWS: the oldest go
first. A row counts while its key does not say 0, which is stored last when a row is made, and first when it goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ipc.compiled.atomics import publish
from ipc.region import WORD_BYTES, Region

REGION_KIND, LAYOUT = "decided", 1
ROWS = 1 << 15  # far more than can be under way
NOTHING = -1  # as a put's number, as a half message
KEY_BYTES = 16


class DecidedWord(IntEnum):
    """The words before the rows; one that is announced has the word behind it, too."""

    RING = 0  # the number of the ring in which the puts' numbers are, and one
    MADE = 2  # rows
    ROWS = 8


class DecidedRow(IntEnum):
    """Words of a row: one transaction."""

    KEY = 0  # with CHECK: which transaction it is
    CHECK = 1
    STATE = 2
    NUMBER = 3  # under which its message was published, while that is not known to be in the log
    HALF = 4  # whose op message is not in the log yet


ROW_WORDS = len(DecidedRow)


class State(IntEnum):
    """The state of a transaction."""

    COMMITTING = 1  # its message is on the way into the log
    COMMITTED = 2
    ROLLED_BACK = 3


class Decided(NamedTuple):
    """A row: its place among all rows that were made."""

    place: int
    key: bytes
    state: State
    number: int
    half: int


def _path(directory: Path, front: int) -> Path:
    return directory / f"decided-{front}"


def create(directory: Path, front: int) -> None:
    """The region of a front; only the supervisor makes it. Raises RegionNoSpace."""
    size = (DecidedWord.ROWS + ROWS * ROW_WORDS) * WORD_BYTES
    Region.create(_path(directory, front), size, kind=REGION_KIND, layout=LAYOUT).close()


class DecidedTable:
    """The table of one front, as a reader has it."""

    def __init__(self, region: Region) -> None:
        self._region, self._words = region, region.words
        self._rows = self._words[DecidedWord.ROWS :].reshape(-1, ROW_WORDS)

    @classmethod
    def attach(cls, directory: Path, front: int) -> DecidedTable:
        """Attach to the table of a running broker's front. Raises RegionMissing, RegionMismatch."""
        return cls(Region.attach(_path(directory, front), kind=REGION_KIND, layout=LAYOUT))

    def state_of(self, key: bytes) -> State | None:
        """Return what has become of a transaction, as far as this front knows."""
        word, check = np.frombuffer(key, np.int64).tolist()
        used = min(int(self._words[DecidedWord.MADE]), ROWS)
        for row in np.flatnonzero(self._rows[:used, DecidedRow.KEY] == word).tolist():
            of_row = self._rows[row].tolist()
            if of_row[DecidedRow.KEY] == word and of_row[DecidedRow.CHECK] == check:
                return State(of_row[DecidedRow.STATE])
        return None

    def close(self) -> None:
        """Unmap the region; the table is empty afterwards."""
        self._words = np.empty(0, np.int64)
        self._rows = np.empty((0, ROW_WORDS), np.int64)
        self._region.close()


class DecidedJournal(DecidedTable):
    """The table, as its front writes it."""

    def __init__(self, region: Region) -> None:
        super().__init__(region)
        self._places = {row.key: row.place for row in self.rows()}

    @classmethod
    def attach(cls, directory: Path, front: int) -> DecidedJournal:
        """Attach to write. Only one process at a time may. Raises RegionMissing, RegionMismatch."""
        return cls(Region.attach(_path(directory, front), kind=REGION_KIND, layout=LAYOUT, writable=True))

    @property
    def ring(self) -> int:
        """The ring of the numbers; NOTHING before there is one."""
        return int(self._words[DecidedWord.RING]) - 1

    def claim(self, ring_number: int) -> None:
        """The numbers are this ring's from now on: those that were noted before say nothing, if it is another one."""
        if ring_number != self.ring:
            self._rows[:, DecidedRow.NUMBER] = NOTHING
        publish(self._words, int(DecidedWord.RING), ring_number + 1)

    def rows(self) -> Iterator[Decided]:
        """Yield all rows in use, the oldest first."""
        made = int(self._words[DecidedWord.MADE])
        for place in range(max(0, made - ROWS), made):
            row = self._rows[place % ROWS]
            if row[DecidedRow.KEY]:
                key = row[DecidedRow.KEY : DecidedRow.CHECK + 1].tobytes()
                _key, _check, state, number, half = row.tolist()
                yield Decided(place, key, State(state), number, half)

    def state_of(self, key: bytes) -> State | None:
        """Return a transaction's state by its known place, without a search; None where it has no place."""
        place = self._places.get(key)
        return None if place is None else State(int(self._rows[place % ROWS, DecidedRow.STATE]))

    def place_of(self, key: bytes) -> int | None:
        """Return the place of a transaction in the table; None when it is not there."""
        return self._places.get(key)

    def make(self, key: bytes, state: State) -> int:
        """A row more. Who looks at others' tables after this, and they likewise, does not overlook them."""
        place = int(self._words[DecidedWord.MADE])
        self.drop(place - ROWS)
        row = self._rows[place % ROWS]
        word, row[DecidedRow.CHECK] = np.frombuffer(key, np.int64).tolist()
        row[DecidedRow.STATE], row[DecidedRow.NUMBER], row[DecidedRow.HALF] = state, NOTHING, NOTHING
        # The key last: a row without one does not count, so that a killed front leaves no half row.
        publish(self._words, int(DecidedWord.MADE), place + 1)
        publish(self._words, DecidedWord.ROWS + place % ROWS * ROW_WORDS, word)
        self._places[key] = place
        return place

    def drop(self, place: int) -> None:
        """Remove the row: the transaction is undecided again."""
        if not self._counts(place):
            return
        row = self._rows[place % ROWS]
        key = row[DecidedRow.KEY : DecidedRow.CHECK + 1].tobytes()
        publish(self._words, DecidedWord.ROWS + place % ROWS * ROW_WORDS, 0)
        if self._places.get(key) == place:
            del self._places[key]

    def set(self, place: int, word: DecidedRow, value: int) -> None:
        """Set one word of a row, if the row still exists."""
        if self._counts(place):
            self._rows[place % ROWS, word] = value

    def _counts(self, place: int) -> bool:
        made = int(self._words[DecidedWord.MADE])
        return max(0, made - ROWS) <= place < made and bool(self._rows[place % ROWS, DecidedRow.KEY])
