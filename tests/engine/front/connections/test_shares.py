"""A loop turn's time among connections that ask for much: bounded, in line, and the others come in each turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.front.connections import shares as module
from engine.front.connections.shares import FEW, SHARE_BYTES, TURN_NS, Shares
from engine.protocol.remoting.codes import ResponseCode
from tests.engine.front.connections.test_bounds import Greedy
from tests.engine.front.pulls.test_pulls import TOPIC, Shop, opened, pull
from tests.harness.front_client import FrontClient

MANY, COST_NS = 500, TURN_NS // 4
PULLS = 64


class Loop:
    """Turns, in virtual time."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._soon: deque[Callable[[], None]] = deque()
        self.shares = Shares(self._soon.append, lambda: self.now_ns)

    def turn(self) -> int:
        """One turn; how long it took."""
        began_ns = self.now_ns
        for _ in range(len(self._soon)):
            self._soon.popleft()()
        return self.now_ns - began_ns

    @property
    def rests(self) -> bool:
        return not self._soon


class Greed:
    """A connection that asks for so many turns, each of which takes a while."""

    def __init__(self, loop: Loop, turns: int) -> None:
        self._loop, self.left, self.had = loop, turns, 0

    def go_on(self) -> None:
        self.left, self.had = self.left - 1, self.had + 1
        self._loop.now_ns += COST_NS
        if self.left:
            self._loop.shares.wait(self)


def test_a_turn_is_as_long_as_it_may_be_however_many_wait_and_all_have_their_share() -> None:
    loop = Loop()
    greedy = [Greed(loop, 3) for _ in range(MANY)]
    for one in greedy:
        loop.shares.wait(one)
    assert loop.shares.room == SHARE_BYTES
    while not loop.rests:
        assert loop.turn() < TURN_NS + COST_NS
        had = [one.had for one in greedy]
        assert max(had) - min(had) <= 1, "each in line once before anybody is again"
    assert not any(one.left for one in greedy)
    assert loop.shares.room is None


def test_a_few_that_ask_for_much_are_answered_as_one_alone() -> None:
    loop = Loop()
    for _ in range(FEW):
        loop.shares.wait(Greed(loop, 1))
    assert loop.shares.room is None and not loop.shares.is_over


def test_pulls_have_a_turns_time_and_the_next_turns_again() -> None:
    loop = Loop()
    loop.shares.spend(TURN_NS - 1)
    assert not loop.shares.is_over
    loop.shares.spend(1)
    assert loop.shares.is_over and loop.shares.room == SHARE_BYTES
    loop.turn()
    assert not loop.shares.is_over and loop.rests


@pytest.fixture
def crowded(region_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A front whose loop turns have time for one connection each."""
    monkeypatch.setattr(module, "TURN_NS", 1)
    with opened(region_dir) as one:
        yield one


def test_in_a_crowd_everybody_is_answered_in_order_and_another_one_meanwhile(crowded: Shop) -> None:
    crowded.put(100, size=1000)
    greedy = [Greedy(crowded, PULLS) for _ in range(20)]
    for number in range(PULLS):
        assert crowded.ask(number % 64).code == ResponseCode.SUCCESS
        for one in greedy:
            answer = one.take()
            assert (answer.opaque, answer.code) == (number, ResponseCode.SUCCESS)
    for one in greedy:
        one.asking.join()


def test_in_a_crowd_requests_that_compiled_code_does_not_answer_are_answered(crowded: Shop) -> None:
    crowded.put(100, size=1000)
    clients = [FrontClient(crowded.port) for _ in range(20)]
    for one in clients:
        pulls = (pull(number, opaque=number, topic="nowhere" if number % 2 else TOPIC) for number in range(PULLS))
        one.send(*pulls)
    for number in range(PULLS):
        for one in clients:
            expected = ResponseCode.TOPIC_NOT_EXIST if number % 2 else ResponseCode.SUCCESS
            answer = one.take()
            assert (answer.opaque, answer.code) == (number, expected)
