"""A role's event loop: what ends a turn ends nothing else."""

from __future__ import annotations

import asyncio

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
        turns.serve(LONG_MS)
        turns.run(passes())
        turns.end_turn()
        turns.run(passes())
        turns.serve(LONG_MS)  # was ended meanwhile: it returns at once
    turns.serve(0)
    turns.close()
