"""What a front knows of decided transactions: each is ended once, whichever fronts hear of it, and however often.

Implements: nothing of RocketMQ's, which writes a transaction's message once for every copy of its half message
A commit is noted before its message is published, with the number that it gets in the ring: a front that comes after a
dead one learns from there whether the message is in the log. A decision that is under way is not doubted: who says
another one meanwhile is heard once the broker asks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from engine.board.decided_table import NOTHING, DecidedJournal, DecidedRow, DecidedTable, State


class OwnRing(Protocol):
    """The ring into which this front publishes."""

    @property
    def ring_number(self) -> int:
        """Return the number of this front's ring."""

    def is_in_log(self, number: int) -> bool | None:
        """Whether what was published under this number is in the log; None: that is not known yet."""


class Decisions:
    """Decided transactions as one front knows them; `others` are the tables of the other fronts."""

    def __init__(self, journal: DecidedJournal, others: Sequence[DecidedTable], ring: OwnRing) -> None:
        self._journal, self._others, self._ring = journal, others, ring
        journal.claim(ring.ring_number)
        self._unsettled = {row.place: row.number for row in journal.rows() if row.state is State.COMMITTING}
        self._due = {row.half: row.place for row in journal.rows() if row.half != NOTHING}
        self.left_halves = list(self._due)  # whose op messages a front before us did not write

    def of(self, key: bytes) -> State | None:
        """Return the state of a transaction; None: undecided."""
        state = self._journal.state_of(key)
        return self._of_others(key) if state is None else state

    def _of_others(self, key: bytes) -> State | None:
        states = (table.state_of(key) for table in self._others)
        return next((state for state in states if state is not None), None)

    # a commit

    def begin(self, key: bytes) -> int | None:
        """Note a commit and return its place; None where another front was faster."""
        place = self._journal.make(key, State.COMMITTING)
        if self._of_others(key) is None:
            return place
        self._journal.drop(place)
        return None

    def publishes(self, place: int, number: int) -> None:
        """Note the number under which the message is published next; NOTHING: it was not published."""
        self._journal.set(place, DecidedRow.NUMBER, number)

    def was_put(self, key: bytes) -> None:
        """A run before has put its message."""
        self._journal.make(key, State.COMMITTED)

    def is_put(self, place: int) -> None:
        """Note that the transaction's message is in the log."""
        self._journal.set(place, DecidedRow.STATE, State.COMMITTED)

    def is_not_put(self, place: int) -> None:
        """Forget a transaction whose message was not put and will not be."""
        self._journal.drop(place)

    def is_unknown(self, place: int, number: int) -> None:
        """The writer has said nothing of its message: `turn` goes on with it."""
        self._unsettled[place] = number

    @property
    def is_unsettled(self) -> bool:
        """Whether `turn` has something to go on with."""
        return bool(self._unsettled)

    def turn(self) -> None:
        """Find out what became of messages whose put had no outcome yet."""
        for place, number in list(self._unsettled.items()):
            is_in_log = number != NOTHING and self._ring.is_in_log(number)
            if is_in_log is None:
                continue
            del self._unsettled[place]
            if is_in_log:
                self.is_put(place)
            else:
                self.is_not_put(place)

    # a rollback, and op messages

    def roll_back(self, key: bytes) -> None:
        """Note that the transaction is rolled back."""
        self._journal.make(key, State.ROLLED_BACK)

    def op_is_due(self, key: bytes, half: int) -> None:
        """Note that the op message of a half message has to be written."""
        place = self._journal.place_of(key)
        if place is not None:
            self._journal.set(place, DecidedRow.HALF, half)
            self._due[half] = place

    def op_is_written(self, half: int) -> None:
        """Note that the op message of this half message is written."""
        place = self._due.pop(half, None)
        if place is not None:
            self._journal.set(place, DecidedRow.HALF, NOTHING)

    def close(self) -> None:
        """Unmap this front's table and the others'."""
        for table in (self._journal, *self._others):
            table.close()
