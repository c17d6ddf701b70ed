"""Items that threads make ahead come in order, are few at any time, and end with who takes them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from spark_bridge.records import in_order as module
from spark_bridge.records.in_order import AHEAD, JOBS_AHEAD, in_order

JOIN_SECONDS = 60
Items = Iterator[tuple[int, int]]


class Makers:
    """Jobs of some items each, which count what was made of each."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths, self.made, self.closed = lengths, [0] * len(lengths), [False] * len(lengths)
        self.asked = 0

    def items(self, number: int) -> Items:
        try:
            for item in range(self.lengths[number]):
                self.made[number] += 1
                yield number, item
        finally:
            self.closed[number] = True

    def jobs(self) -> Iterator[partial[Items]]:
        for number in range(len(self.lengths)):
            self.asked += 1
            yield partial(self.items, number)

    def expected(self) -> list[tuple[int, int]]:
        return [(number, item) for number, length in enumerate(self.lengths) for item in range(length)]


def threads_of(before: set[threading.Thread]) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread not in before]


@pytest.mark.parametrize("threads", [1, 2, 3, 64])
@pytest.mark.parametrize("lengths", [[], [5], [0, 0], [3, 0, 7, 1, 0, 2], [50, 50, 50, 50], [1] * 300])
def test_items_come_job_by_job(lengths: list[int], threads: int) -> None:
    makers = Makers(lengths)
    assert list(in_order(makers.jobs(), threads)) == makers.expected()
    assert all(makers.closed)


def test_neither_items_nor_jobs_are_more_than_a_few_ahead() -> None:
    makers, threads = Makers([20] * 40), 2
    taken = 0
    for number, item in in_order(makers.jobs(), threads):
        taken += 1
        assert makers.asked <= number + JOBS_AHEAD * threads
        for other in range(number, len(makers.lengths)):
            assert makers.made[other] <= (item if other == number else 0) + AHEAD + 2, (number, item, other)
    assert taken == 800


def test_a_job_may_be_far_ahead_where_its_items_are_small() -> None:
    makers, before = Makers([1, 100]), set(threading.enumerate())
    items = in_order(makers.jobs(), 2, ahead=1000)
    assert next(items) == (0, 0)
    for thread in threads_of(before):
        thread.join(JOIN_SECONDS)
    assert makers.made == [1, 100], "all of the second job was made while the first one's item was looked at"
    assert list(items) == makers.expected()[1:]


def broken(text: str) -> Items:
    yield 9, 0
    raise ValueError(text)


def test_an_error_comes_in_its_place() -> None:
    makers, found = Makers([2, 3]), []
    first, second = makers.jobs()
    with pytest.raises(ValueError, match="broken here"):
        for item in in_order([first, partial(broken, "broken here"), second], 2):
            found.append(item)
    assert found == [(0, 0), (0, 1), (9, 0)]


def test_an_error_of_the_jobs_themselves_comes_behind_their_items() -> None:
    makers, found = Makers([2, 3]), []

    def jobs() -> Iterator[partial[Items]]:
        yield from makers.jobs()
        raise ValueError("no more jobs")

    with pytest.raises(ValueError, match="no more jobs"):
        for item in in_order(jobs(), 2):
            found.append(item)
    assert found == makers.expected()


def test_threads_end_with_who_takes_the_items() -> None:
    before, makers = set(threading.enumerate()), Makers([100] * 6)
    items = in_order(makers.jobs(), 3)
    assert next(items) == (0, 0)
    makers_of_it = threads_of(before)
    assert len(makers_of_it) == 3
    items.close()  # type: ignore[attr-defined]
    for thread in makers_of_it:
        thread.join(JOIN_SECONDS)
        assert not thread.is_alive()
    assert max(makers.made) <= AHEAD + 2
    assert [is_closed for is_closed, made in zip(makers.closed, makers.made, strict=True) if made] == [True] * 3


def test_who_awaits_the_end_finds_no_thread_and_no_open_job() -> None:
    before, makers, may_end = set(threading.enumerate()), Makers([100] * 6), threading.Event()

    def slow() -> Items:
        yield 9, 0
        may_end.wait(JOIN_SECONDS)
        yield from makers.items(0)

    items = in_order([slow, *makers.jobs()], 2, awaits_end=True)
    assert next(items) == (9, 0)
    helper = threading.Timer(0.05, may_end.set)  # the end is awaited meanwhile
    helper.start()
    items.close()  # type: ignore[attr-defined]
    assert may_end.is_set()
    helper.join(JOIN_SECONDS)
    assert threads_of(before) == []
    assert all(is_closed for is_closed, made in zip(makers.closed, makers.made, strict=True) if made)


def test_threads_that_are_gone_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Shared, "make", lambda _self: None)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    with pytest.raises(RuntimeError, match="threads ended"):
        list(in_order(Makers([1, 1]).jobs(), 2))
