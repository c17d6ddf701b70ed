"""A role's event loop: what ends a turn ends nothing else."""

from __future__ import annotations

import asyncio

import pytest

from engine.remoting.loop.role_loop import RoleLoop

LONG_MS = 60_000


async def passes() -> None:
    """Go through the loop often enough for what was called soon, and for what that called soon."""
    for _ in range(3):
        passed = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(passed.set_result, None)
        await passed


def test_a_turn_that_is_ended_twice_or_before_it_began_does_not_end_what_runs_next() -> None:
    turns = RoleLoop()

    def end_twice() -> None:
        turns.end_turn()
        turns.loop.call_soon(turns.end_turn)

    for _ in range(3):
        turns.loop.call_soon(end_twice)
        turns.idle(LONG_MS)
        turns.run(passes())
        turns.end_turn()
        turns.run(passes())
        turns.idle(LONG_MS)  # was ended meanwhile: it returns at once
    turns.idle(0)
    turns.close()


def test_a_turn_comes_when_it_is_due_or_was_asked_for_until_one_finds_that_it_is_over() -> None:
    turns, began = RoleLoop(), []
    waits = iter((0, LONG_MS, 0))

    def turn() -> None:
        assert turns.loop.is_running()
        began.append(len(began))
        if len(began) == 2:
            turns.loop.call_soon(turns.end_turn)  # while it waits
        if len(began) == 3:
            turns.end_turn()  # in the turn itself

    turns.serve(turn, lambda: len(began) == 4, lambda: next(waits))
    assert began == [0, 1, 2, 3]
    turns.run(passes())
    turns.close()


def test_a_loop_that_asks_for_a_turn_all_the_time_has_one() -> None:
    turns, began = RoleLoop(), []

    def ask() -> None:
        turns.end_turn()
        turns.loop.call_soon(ask)

    turns.loop.call_soon(ask)
    turns.serve(lambda: began.append(1), lambda: len(began) == 3, lambda: LONG_MS)
    turns.close()


def test_what_a_turn_raises_ends_the_loop() -> None:
    turns = RoleLoop()

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        turns.serve(fail, lambda: False, lambda: LONG_MS)
    turns.run(passes())
    turns.close()
