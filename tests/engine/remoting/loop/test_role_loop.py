"""A role's event loop: what ends a turn ends nothing else."""

from __future__ import annotations

import asyncio

from engine.remoting.loop.role_loop import RoleLoop

LONG_MS = 60_000


def test_a_turn_that_is_ended_twice_or_before_it_began_does_not_end_what_runs_next() -> None:
    turns = RoleLoop()

    def end_twice() -> None:
        turns.end_turn()
        turns.loop.call_soon(turns.end_turn)

    for _ in range(3):
        turns.loop.call_soon(end_twice)
        turns.serve(LONG_MS)
        turns.run(asyncio.sleep(0.001))
        turns.end_turn()
        turns.run(asyncio.sleep(0.001))
        turns.serve(LONG_MS)  # was ended meanwhile: it returns at once
    turns.serve(0)
    turns.close()
