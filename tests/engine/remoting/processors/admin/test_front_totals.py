"""What fronts counted is waited for: of all that were asked, by the number under which they were, and not for ever."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from engine.monitoring.counted import COMMITTED, Counts
from engine.remoting.links.front_links import FrontLinks
from engine.remoting.processors.admin import front_totals
from engine.remoting.processors.admin.front_totals import FrontTotals


class Links:
    """Fronts that a test plays."""

    def __init__(self, fronts: int) -> None:
        self._fronts = fronts
        self.asked: list[int] = []
        self.are_asked = asyncio.Event()

    def ask_counts(self, number: int) -> set[int]:
        self.asked.append(number)
        self.are_asked.set()
        return set(range(self._fronts))


def totals_of(fronts: int) -> tuple[FrontTotals, Links, Counts]:
    links, counts = Links(fronts), Counts()
    return FrontTotals(cast(FrontLinks, links), counts), links, counts


def rows(topic: str) -> list[tuple[tuple[str, str], list[int]]]:
    return [((COMMITTED, topic), [1])]


def test_totals_are_settled_once_every_front_has_answered_this_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_totals, "SECONDS", 600.0)

    async def ask() -> None:
        totals, links, counts = totals_of(2)
        settling = asyncio.ensure_future(totals.settle())
        await links.are_asked.wait()
        [number] = links.asked
        totals.take({"rows": rows("of its own accord")})
        totals.take({"rows": rows("t"), "number": number, "front": 0})
        totals.take({"rows": [], "number": number - 1, "front": 1})
        _done, pending = await asyncio.wait({settling}, timeout=0.01)
        assert pending
        totals.take({"rows": rows("t"), "number": number, "front": 1})
        await settling
        assert dict(counts.of(COMMITTED)) == {("of its own accord",): [1], ("t",): [2]}

    asyncio.run(ask())


def test_two_who_ask_are_each_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_totals, "SECONDS", 600.0)

    async def ask() -> None:
        totals, links, _counts = totals_of(1)
        both = [asyncio.ensure_future(totals.settle()) for _ in range(2)]
        while len(links.asked) < len(both):
            links.are_asked.clear()
            await links.are_asked.wait()
        for number in reversed(links.asked):
            totals.take({"rows": [], "number": number, "front": 0})
        await asyncio.gather(*both)

    asyncio.run(ask())


def test_a_front_that_hangs_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_totals, "SECONDS", 0.01)

    async def ask() -> None:
        totals, links, counts = totals_of(1)
        await totals.settle()
        totals.take({"rows": rows("late"), "number": links.asked[0], "front": 0})
        assert dict(counts.of(COMMITTED)) == {("late",): [1]}

    asyncio.run(ask())
