"""Items that threads make ahead come in order, are few at any time, and end with who takes them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from spark_bridge.records import in_order as module
from spark_bridge.records.in_order import AHEAD, in_order

JOIN_SECONDS = 60


class Makers:
    """Parts of some items each, which count what was made of each part."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths, self.made, self.closed = lengths, [0] * len(lengths), [False] * len(lengths)

    def items(self, number: int) -> Iterator[tuple[int, int]]:
        try:
            for item in range(self.lengths[number]):
                self.made[number] += 1
                yield number, item
        finally:
            self.closed[number] = True

    def parts(self) -> list[partial[Iterator[tuple[int, int]]]]:
        return [partial(self.items, number) for number in range(len(self.lengths))]

    def expected(self) -> list[tuple[int, int]]:
        return [(number, item) for number, length in enumerate(self.lengths) for item in range(length)]


def threads_of(before: set[threading.Thread]) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread not in before]


@pytest.mark.parametrize("threads", [1, 2, 3, 64])
@pytest.mark.parametrize("lengths", [[], [5], [0, 0], [3, 0, 7, 1, 0, 2], [50, 50, 50, 50]])
def test_items_come_part_by_part(lengths: list[int], threads: int) -> None:
    makers = Makers(lengths)
    assert list(in_order(makers.parts(), threads)) == makers.expected()
    assert all(makers.closed)


def test_no_thread_is_more_than_a_few_items_ahead() -> None:
    makers, threads = Makers([200, 200, 200, 200]), 2
    taken = 0
    for number, item in in_order(makers.parts(), threads):
        taken += 1
        for other in range(len(makers.lengths)):
            behind = item if other == number else 0 if other > number else makers.lengths[other]
            assert makers.made[other] <= behind + AHEAD + 2, (number, item, other)
    assert taken == 800


def test_an_error_comes_in_its_place() -> None:
    def broken() -> Iterator[tuple[int, int]]:
        yield 9, 0
        raise ValueError("broken here")

    makers, found = Makers([2, 3]), []
    parts = [makers.parts()[0], broken, makers.parts()[1]]
    with pytest.raises(ValueError, match="broken here"):
        for item in in_order(parts, 2):
            found.append(item)
    assert found == [(0, 0), (0, 1), (9, 0)]


def test_threads_end_with_who_takes_the_items() -> None:
    before, makers = set(threading.enumerate()), Makers([100] * 6)
    items = in_order(makers.parts(), 3)
    assert next(items) == (0, 0)
    makers_of_it = threads_of(before)
    assert len(makers_of_it) == 3
    items.close()  # type: ignore[attr-defined]
    for thread in makers_of_it:
        thread.join(JOIN_SECONDS)
        assert not thread.is_alive()
    assert max(makers.made) <= AHEAD + 2
    assert [is_closed for is_closed, made in zip(makers.closed, makers.made, strict=True) if made] == [True] * 3


def test_a_thread_that_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_make", lambda _parts, _line: None)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    with pytest.raises(RuntimeError, match="slipstream-scan-0 ended"):
        list(in_order(Makers([1, 1]).parts(), 2))
