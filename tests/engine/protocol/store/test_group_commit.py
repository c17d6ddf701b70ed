"""Flushes that wait for each other's clients, in virtual time: whichever way serves more is found, and found again."""

from __future__ import annotations

import heapq
import random
from typing import NamedTuple

import pytest

from engine.protocol.store.group_commit import SETTLED, WAIT_MAX_NS, GroupCommit

FLUSHES = 6000
US = 1000


class Load(NamedTuple):
    """Clients that send one message after another; the broker's and their processors take `cpu_us` for each."""

    clients: int
    flush_us: int
    cpu_us: int
    way_us: int  # from an answer to the client's next message in the log, beside that
    outliers: float = 0.02


class One(GroupCommit):
    """One that always goes the same way."""

    def __init__(self, waits: bool) -> None:
        super().__init__()
        self._always = waits

    def goal(self, messages: int) -> int:
        self.waits = self._always
        return super().goal(messages)


class Played:
    """A log, its clients and a flusher."""

    def __init__(self, load: Load, group: GroupCommit, seed: int) -> None:
        self.load, self.group, self.draw = load, group, random.Random(seed)
        self.now, self.busy_until, self.messages, self.waiting, self.longest = 1, 0, 0, 0, 0
        self.coming: list[int] = []
        self.answer(load.clients)

    def answer(self, count: int) -> None:
        for _ in range(count):
            self.busy_until = max(self.now, self.busy_until) + self.load.cpu_us * US
            heapq.heappush(self.coming, self.busy_until + int(self.load.way_us * US * self.draw.uniform(0.8, 1.2)))

    def go_to(self, now: int) -> None:
        self.now = max(self.now, now)
        while self.coming and self.coming[0] <= self.now:
            heapq.heappop(self.coming)
            self.messages += 1
            self.waiting += 1

    def flush(self) -> None:
        self.go_to(self.now)
        if not self.waiting:
            self.go_to(self.coming[0])
        goal, began = self.group.goal(self.messages), self.now
        until = self.now + self.group.wait_ns(self.now)
        while self.messages < goal and self.coming and self.coming[0] <= until:
            self.go_to(self.coming[0])
        if self.messages < goal:
            self.go_to(until)
        self.longest = max(self.longest, self.now - began)
        covered, at, began = self.waiting, self.messages, self.now
        took = self.load.flush_us * self.draw.uniform(0.8, 1.3) * (20 if self.draw.random() < self.load.outliers else 1)
        self.go_to(began + int(took * US))
        self.waiting -= covered
        self.group.flushed(at, self.messages, began, self.now)
        self.answer(covered)


def rate(load: Load, group: GroupCommit, seed: int) -> float:
    """Messages a millisecond once it has tried both."""
    played = Played(load, group, seed)
    for _ in range(FLUSHES):
        played.flush()
    assert played.longest <= WAIT_MAX_NS
    return played.messages / played.now * 1e6


@pytest.mark.parametrize(
    "load",
    [
        Load(16, 1000, 20, 100),
        Load(16, 4000, 25, 300),
        Load(4, 500, 25, 200),
        Load(256, 500, 20, 100),
        Load(2, 800, 10, 50),
        Load(256, 3000, 25, 200),
        Load(16, 300, 25, 400),
        Load(32, 100, 5, 2000),
        Load(1, 500, 25, 200),
        Load(16, 20_000, 20, 100),
    ],
    ids=str,
)
def test_group_commit_finds_the_way_that_serves_more(load: Load) -> None:
    halves, together = (rate(load, One(waits), 1) for waits in (False, True))
    assert rate(load, GroupCommit(), 2) >= 0.9 * max(halves, together)


def test_clients_that_come_back_soon_share_each_flush() -> None:
    played = Played(Load(16, 2000, 20, 100, outliers=0), GroupCommit(), 3)
    for _ in range(400):
        played.flush()
    assert played.group.waits
    before = played.messages
    for _ in range(1000):
        played.flush()
    assert (played.messages - before) / 1000 > 15


def test_a_load_that_changes_is_tried_again() -> None:
    played = Played(Load(16, 2000, 20, 100), GroupCommit(), 5)
    for _ in range(400):
        played.flush()
    assert played.group.waits
    played.load = Load(16, 300, 25, 400)
    for _ in range(SETTLED + 400):
        played.flush()
    assert not played.group.waits


def test_nobody_is_waited_for_who_was_not_answered_by_the_flush_before() -> None:
    group = GroupCommit()
    group.waits = True
    group.flushed(5, 7, 1000, 2000)
    assert group.goal(8) == 12, "two came meanwhile, and five were answered"
    assert group.goal(13) == 13
    assert group.wait_ns(2100) == 900
    assert group.wait_ns(10_000) < 0, "who is not back by then is not expected"
