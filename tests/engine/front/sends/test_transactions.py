"""Transactions that are ended by several fronts, twice, and over their deaths: each message once, or never."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.front.sends.transactions import Decisions
from engine.shared_memory import decided_table
from engine.shared_memory.decided_table import NOTHING, ROWS, DecidedJournal, DecidedRow, DecidedTable, State

FRONTS, TRANSACTIONS = 2, 40
SEEDS = range(40)


def key_of(number: int) -> bytes:
    return (number + 1).to_bytes(8, "big") + b"\xff" * 8


@dataclass
class PlayedRing:
    """A front's ring, which outlives it: what was published, what of that the writer has passed, what it took."""

    ring_number: int
    published: list[int] = field(default_factory=list)  # transactions
    refused: set[int] = field(default_factory=set)  # numbers
    passed: int = 0

    def is_in_log(self, number: int) -> bool | None:
        if self.passed <= number < len(self.published):
            return None
        return number < self.passed and number not in self.refused


@dataclass
class Play:
    """Fronts that are told of ends, each in its own time, and killed."""

    directory: Path
    dice: random.Random
    rings: list[PlayedRing] = field(default_factory=lambda: [PlayedRing(number) for number in range(FRONTS)])
    log: Counter[int] = field(default_factory=Counter)
    fronts: list[Decisions] = field(default_factory=list)
    waiting: list[dict[int, tuple[int, int]]] = field(default_factory=lambda: [{} for _ in range(FRONTS)])

    def begin(self, front: int) -> Decisions:
        """The process of a front, after whichever there was."""
        journal = DecidedJournal.attach(self.directory, front)
        others = [DecidedTable.attach(self.directory, other) for other in range(FRONTS) if other != front]
        self.waiting[front] = {}
        return Decisions(journal, others, self.rings[front])

    def commit(self, front: int, transaction: int) -> None:
        """37; its process may be killed at any line."""
        decisions, ring, key = self.fronts[front], self.rings[front], key_of(transaction)
        if decisions.of(key) is not None or (place := decisions.begin(key)) is None:
            return
        if self.is_killed(front):
            return
        number = len(ring.published)
        decisions.publishes(place, number)
        if self.is_killed(front):
            return
        if self.dice.random() < 0.1:  # no room: it is published later, or never
            decisions.publishes(place, NOTHING)
            decisions.is_not_put(place)
            return
        ring.published.append(transaction)
        self.waiting[front][number] = place, transaction
        self.is_killed(front)

    def is_killed(self, front: int) -> bool:
        if self.dice.random() < 0.05:
            self.fronts[front].close()
            self.fronts[front] = self.begin(front)
            return True
        return False

    def write(self, front: int) -> None:
        """The writer takes something; the front hears of it, if it lives still."""
        ring = self.rings[front]
        while ring.passed < len(ring.published):
            number = ring.passed
            if self.dice.random() < 0.1:
                ring.refused.add(number)
            else:
                self.log[ring.published[number]] += 1
            ring.passed += 1
            if self.is_killed(front):
                continue
            place, _transaction = self.waiting[front].pop(number, (NOTHING, 0))
            if place == NOTHING:
                continue
            if self.dice.random() < 0.1:
                self.fronts[front].is_unknown(place, number)
            elif number in ring.refused:
                self.fronts[front].is_not_put(place)
            else:
                self.fronts[front].is_put(place)
            if self.dice.random() < 0.3:
                return


@pytest.mark.parametrize("seed", SEEDS)
def test_a_decided_transaction_is_written_once_whichever_fronts_hear_of_it_and_die(seed: int, tmp_path: Path) -> None:
    for front in range(FRONTS):
        decided_table.create(tmp_path, front)
    play = Play(tmp_path, random.Random(seed))
    play.fronts = [play.begin(front) for front in range(FRONTS)]
    rolled_back = {number for number in range(TRANSACTIONS) if play.dice.random() < 0.2}
    for number in rolled_back:
        play.fronts[play.dice.randrange(FRONTS)].roll_back(key_of(number))
    for _ in range(400):
        front = play.dice.randrange(FRONTS)
        if play.dice.random() < 0.7:
            play.commit(front, play.dice.randrange(TRANSACTIONS))
        else:
            play.write(front)
        play.fronts[front].turn()
    assert not rolled_back & play.log.keys() and max(play.log.values()) == 1
    for _round in range(200):  # its producer is asked again, and again
        for number in set(range(TRANSACTIONS)) - rolled_back:
            play.commit(play.dice.randrange(FRONTS), number)
        for front in range(FRONTS):
            play.write(front)
            play.fronts[front].turn()
        if len(play.log) == TRANSACTIONS - len(rolled_back):
            break
    assert play.log == dict.fromkeys(set(range(TRANSACTIONS)) - rolled_back, 1)
    for decisions in play.fronts:
        decisions.close()


def test_op_messages_that_a_dead_front_did_not_write_are_its_successors(tmp_path: Path) -> None:
    decided_table.create(tmp_path, 0)
    before = Decisions(DecidedJournal.attach(tmp_path, 0), [], PlayedRing(0))
    for number in range(3):
        before.roll_back(key_of(number))
        before.op_is_due(key_of(number), 100 + number)
    before.op_is_written(101)
    after = Decisions(DecidedJournal.attach(tmp_path, 0), [], PlayedRing(0))
    assert after.left_halves == [100, 102]
    after.op_is_written(100)
    assert Decisions(DecidedJournal.attach(tmp_path, 0), [], PlayedRing(0)).left_halves == [102]


def test_the_oldest_are_forgotten_first_and_another_ring_says_nothing(tmp_path: Path) -> None:
    decided_table.create(tmp_path, 0)
    journal, reader = DecidedJournal.attach(tmp_path, 0), DecidedTable.attach(tmp_path, 0)
    journal.claim(3)
    first = journal.make(key_of(0), State.COMMITTING)
    journal.set(first, DecidedRow.NUMBER, 7)
    assert [row.number for row in journal.rows()] == [7]
    journal.claim(3)
    assert [row.number for row in journal.rows()] == [7]
    journal.claim(4)
    assert [row.number for row in journal.rows()] == [NOTHING]
    for number in range(1, ROWS + 1):
        journal.make(key_of(number), State.ROLLED_BACK)
    journal.drop(first)  # it is not there any more: another one has its place
    for table in (journal, reader, DecidedJournal.attach(tmp_path, 0)):
        assert table.state_of(key_of(0)) is None
        assert table.state_of(key_of(1)) is table.state_of(key_of(ROWS)) is State.ROLLED_BACK
    assert reader.state_of(key_of(1)[:8] + b"\0" * 8) is None
