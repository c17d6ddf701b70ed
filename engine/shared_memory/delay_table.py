"""How far the delay levels are delivered, and what of them is in the ring just now, in shared memory.

Implements: the offsetTable of ScheduleMessageService
Written by the delay role alone; the clients role writes delayOffset.json from it, figures show it. A delay role that is
killed goes on from here: which of its last messages are in the log is known by their numbers in its ring. After a
promotion the clients role says first how far the master before was.

Region "delay": DelayWord | for each level: its offset, all below is done with | for each level: how far the master
before was, as the clients role says | for each number in the ring: ROW_WORDS
The row of number n is the one at n % rows. It is filled before the number is published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path

import numpy as np

from ipc.arrays import Words
from ipc.compiled.atomics import publish
from ipc.region import Region

REGION_KIND, LAYOUT = "delay", 2
DELAY_FILE = "delay"
ROWS = 16384  # more than may be without an answer
OFFSET_BITS = 40  # of a queue offset in an entry; the rest is the level
OFFSET_MASK = (1 << OFFSET_BITS) - 1
NOT_THERE = -1  # as a row's number


class DelayWord(IntEnum):
    """The words at the region's beginning."""

    LEVELS = 0
    ROWS = 1
    IS_BEGUN = 2  # the levels' offsets are those of this run
    RING = 3  # the number of the ring in which the rows' numbers are, and one
    ANSWERED = 4  # numbers below are answered
    IS_TAKEN = 6  # the clients role has asked the master before; one that is announced has the word behind it, too
    OFFSETS = 8


class RowWord(IntEnum):
    """The words of a row."""

    NUMBER = 0  # NOT_THERE: none, or refused
    ENTRY = 1


ROW_WORDS = len(RowWord)


def entry_of(level: int, queue_offset: int) -> int:
    """A level's message as one word."""
    return level << OFFSET_BITS | queue_offset


class DelayTable:
    """Offsets that the delay levels have reached and the rows under way, in their shared region."""

    def __init__(self, region: Region) -> None:
        self._region, self.words = region, region.words
        self.levels, rows = int(self.words[DelayWord.LEVELS]), int(self.words[DelayWord.ROWS])
        at = DelayWord.OFFSETS + self.levels
        self.offsets: Words = self.words[DelayWord.OFFSETS : at]  # of level n at n - 1
        self._taken: Words = self.words[at : at + self.levels]
        at += self.levels
        self.rows: Words = self.words[at : at + rows * ROW_WORDS]

    @classmethod
    def create(cls, directory: Path, levels: int, rows: int = ROWS) -> None:
        """Create the table of a broker that starts as a master. Only the supervisor calls it."""
        words = DelayWord.OFFSETS + 2 * levels + rows * ROW_WORDS
        region = Region.create(directory / DELAY_FILE, words * 8, kind=REGION_KIND, layout=LAYOUT)
        region.words[DelayWord.LEVELS], region.words[DelayWord.ROWS] = levels, rows
        table = cls(region)
        table.rows[:] = NOT_THERE
        table.close()

    @classmethod
    def attach(cls, directory: Path, writable: bool = False) -> DelayTable:
        """Attach to a running broker's table. Raises RegionMissing, RegionMismatch."""
        return cls(Region.attach(directory / DELAY_FILE, kind=REGION_KIND, layout=LAYOUT, writable=writable))

    @property
    def is_begun(self) -> bool:
        """Whether the delay role of this run has said how far the levels are."""
        return bool(self.words[DelayWord.IS_BEGUN])

    def is_whole(self) -> bool:
        """Whether it is as its writer leaves it, whenever that dies."""
        of_words = DelayWord.OFFSETS + 2 * self.levels + len(self.rows)
        return 0 < self.levels == len(self.offsets) and of_words == len(self.words) and bool((self.offsets >= 0).all())

    def current(self) -> dict[int, int]:
        """Return the delivered offset of each level."""
        return {level: int(offset) for level, offset in enumerate(self.offsets, 1)}

    # the clients role's

    def take(self, offsets: Mapping[int, int]) -> None:
        """Take the offsets that a master had before, by level; a level is left out where the master did not answer."""
        for level, offset in offsets.items():
            if 1 <= level <= self.levels:
                self._taken[level - 1] = offset
        publish(self.words, int(DelayWord.IS_TAKEN), 1)

    # the delay role's

    @property
    def is_taken(self) -> bool:
        """Whether the master before was asked."""
        return bool(self.words[DelayWord.IS_TAKEN])

    def taken(self, level: int) -> int:
        """Return how far the old master was with a level; 0 where that is unknown."""
        return int(self._taken[level - 1])

    def begin(self, offsets: Iterable[int]) -> None:
        """These are the levels' offsets, from level 1 on."""
        for at, offset in enumerate(offsets):
            self.publish(at + 1, offset)
        publish(self.words, int(DelayWord.IS_BEGUN), 1)

    def publish(self, level: int, offset: int) -> None:
        """A level is done with below this."""
        publish(self.words, int(DelayWord.OFFSETS) + level - 1, offset)

    def claim(self, ring: int, answered: int) -> None:
        """The rows' numbers are this ring's from now on; what they said is settled."""
        self.rows[:] = NOT_THERE
        self.words[DelayWord.ANSWERED] = answered
        publish(self.words, int(DelayWord.RING), ring + 1)

    @property
    def ring(self) -> int | None:
        """The ring of the numbers; None before there is one."""
        return int(self.words[DelayWord.RING]) - 1 if self.words[DelayWord.RING] else None

    def note(self, number: int, entry: int) -> None:
        """Note the entry that is published under a number next."""
        at = number % (len(self.rows) // ROW_WORDS) * ROW_WORDS
        self.rows[at + RowWord.ENTRY] = entry
        self.rows[at + RowWord.NUMBER] = number  # last: it makes the entry this number's

    def entries_of(self, numbers: Words) -> Words:
        """Return the entries that the rows with these numbers hold."""
        rows = self.rows.reshape(-1, ROW_WORDS)
        entries: Words = rows[numbers % len(rows), RowWord.ENTRY]
        return entries

    def answered(self, until: int, refused: Words) -> None:
        """Numbers below `until` are answered, these of them refused."""
        rows = self.rows.reshape(-1, ROW_WORDS)
        rows[refused % len(rows), RowWord.NUMBER] = NOT_THERE
        self.words[DelayWord.ANSWERED] = until

    def first_unanswered(self) -> int:
        """The first number without an answer."""
        return int(self.words[DelayWord.ANSWERED])

    def unanswered(self) -> int:
        """Return how many rows have no answer, published or not."""
        numbers = self.rows.reshape(-1, ROW_WORDS)[:, RowWord.NUMBER]
        return int(np.count_nonzero(numbers >= self.words[DelayWord.ANSWERED]))

    def settled(self, in_log: Words | None) -> Words:
        """Entries that are in the log for certain: answered ones, and of the others those whose numbers are in
        `in_log` (None: nobody knows)."""
        rows = self.rows.reshape(-1, ROW_WORDS)
        numbers, answered = rows[:, RowWord.NUMBER], self.words[DelayWord.ANSWERED]
        is_done = (numbers >= 0) & (numbers < answered)
        if in_log is not None:
            is_done |= np.isin(numbers, in_log)
        entries: Words = rows[is_done, RowWord.ENTRY]
        return entries

    def close(self) -> None:
        """Unmap the region; all views are empty afterwards."""
        self.words = self.offsets = self._taken = self.rows = np.empty(0, np.int64)
        self._region.close()
