"""Two slaves promoted at once, in every order of their steps: never do both serve. Shown to be able to fail.

Between its roles a broker answers nobody, and no name server lists it. What each does is the protocol's own:
`Registration`, `NameServer`, and `engine.protocol.ha.reign`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest

from engine.protocol.ha import reign
from engine.protocol.ha.reign import Standing, Step, Watch
from engine.protocol.naming.name_server import NameServer
from engine.protocol.naming.registration import Registration
from engine.protocol.tables.defaults import Identity
from engine.protocol.tables.metadata import Metadata
from engine.protocol.tables.register_body import Member
from store.compat import LINES
from store.epochs import Epoch
from store.tables.steps import at_once

NAME, COMPAT, ROUNDS = "pair", "5", 4
STEPS = ("note_others", "leave", "return_as_master", "ask")


class Promoted:
    """A slave that becomes a master, and one name server's view of it. `asking_id`: until it has asked."""

    def __init__(self, server: NameServer, number: int, asking_id: int) -> None:
        self._server, self._number, self._asking_id = server, number, asking_id
        self.address = f"10.0.0.{number}:10911"
        member = Member("c", NAME, number, self.address, f"10.0.0.{number}:10912")
        self._registration = Registration(member, COMPAT, period_ms=30_000, force=True)
        self._metadata = Metadata(Identity(LINES[COMPAT], "c", NAME), {}, 0)
        self._watch = Watch(0, may_step_down=True)
        self._met = set[str]()
        self.answers, self.is_master, self.serves = True, False, False
        self._register()

    def _register(self) -> None:
        self._registration.hurry()
        making = self._registration.next_request(self._metadata, 6, 0)
        assert making is not None
        assert self._server.answer(at_once(making), self._number, 0) is not None

    def _listed(self) -> set[str]:
        brokers = self._server.routes.brokers.get(NAME)
        return set(brokers.addresses.values()) - {self.address} if brokers else set()

    @property
    def standing(self) -> Standing:
        epoch = Epoch(1, 700, f"{NAME}:{self._number}", self._number)
        return Standing((epoch,) if self.is_master else (), self.is_master, self.serves, self.address)

    def note_others(self, _other: Promoted) -> None:
        self._met = self._listed()

    def leave(self, _other: Promoted) -> None:
        self.answers = False
        self._server.answer(self._registration.unregister(), self._number, 0)

    def return_as_master(self, _other: Promoted) -> None:
        self.answers = self.is_master = True
        self._registration.register_as(self._asking_id)
        self._register()

    def ask(self, other: Promoted) -> None:
        knows = other.address in self._listed() | self._met
        others = [other.standing] if knows and other.answers else []
        verdicts = [reign.judge(self.standing, one, is_proved=True) for one in others]
        match self._watch.step(1, verdicts, asks_first=not self.serves):
            case Step.STEP_DOWN:
                self.is_master = self.serves = False
            case Step.SERVE:
                self.serves = True
                self._registration.register_as(0)
                self._register()


def serving(are_hidden: bool) -> Iterator[list[int]]:
    """Yield for every order how many serve after each step. `are_hidden`: both register as broker 0 at once."""
    for first in combinations(range(2 * len(STEPS)), len(STEPS)):
        server = NameServer(COMPAT)
        one, other = (Promoted(server, number, 0 if are_hidden else number) for number in (1, 2))
        left = {one: list(STEPS), other: list(STEPS)}
        counts = []
        for number in range(2 * len(STEPS)):
            who, whom = (one, other) if number in first else (other, one)
            getattr(who, left[who].pop(0))(whom)
            counts.append(one.serves + other.serves)
        for _ in range(ROUNDS):
            for who, whom in ((one, other), (other, one)):
                if who.is_master:
                    who.ask(whom)
                counts.append(one.serves + other.serves)
        yield counts


def test_of_two_slaves_that_are_promoted_at_once_one_serves() -> None:
    orders = list(serving(are_hidden=False))
    assert len(orders) == 70
    assert {max(counts) for counts in orders} == {1}
    assert {counts[-1] for counts in orders} == {1}


def test_two_that_take_each_others_place_at_a_name_server_both_serve_in_some_order() -> None:
    with pytest.raises(AssertionError):
        assert {max(counts) for counts in serving(are_hidden=True)} == {1}
