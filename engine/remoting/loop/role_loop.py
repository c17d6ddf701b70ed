"""The event loop of a role: it runs from the role's first turn to its last, and calls each turn when that is due.

To begin and to end the loop costs more system calls than most turns: an idle broker would mostly do that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from engine.role import stop_alarm


class RoleLoop:
    """The event loop `loop` of one role."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._next: asyncio.Handle | None = None  # the turn to come; None in a turn, and while none is to come
        self._take_turn: Callable[[], None] = lambda: None
        self._is_soon = self._ends_turn = False
        self.loop.add_reader(stop_alarm(), self._on_alarm)

    def serve(self, turn: Callable[[], object], is_over: Callable[[], bool], wait_ms: Callable[[], int]) -> None:
        """Run; call `turn` now, and again each time that `wait_ms()` is over or `end_turn` was called.

        Return once `is_over()` at the beginning of a turn. Raises what a turn raises.
        """
        failures: list[BaseException] = []

        def take_turn() -> None:
            self._next = None
            try:
                if not is_over():
                    turn()
                    soon, self._ends_turn = self._ends_turn, False
                    self._plan(0 if soon else wait_ms() + 1)  # the loop's clock is that much behind at most
                    return
            except BaseException as error:  # the loop would log it and go on
                failures.append(error)
            self.loop.stop()

        self._take_turn = take_turn
        self._plan(0)
        self.loop.run_forever()
        for failure in failures:
            raise failure

    def _plan(self, wait_ms: int) -> None:
        self._is_soon, loop = wait_ms == 0, self.loop
        turn = self._take_turn
        self._next = loop.call_soon(turn) if self._is_soon else loop.call_later(wait_ms / 1000, turn)

    def idle(self, timeout_ms: int) -> None:
        """Run for that long, or until `end_turn`: between two turns that the caller takes itself."""
        over = iter((False, True))
        self.serve(lambda: None, lambda: next(over), lambda: timeout_ms)

    def run(self, work: Awaitable[Any]) -> None:
        """Run until that is done; not in a turn."""
        self.loop.run_until_complete(work)

    def end_turn(self) -> None:
        """Have the clock looked at soon."""
        if self._next is None:
            self._ends_turn = True
        elif not self._is_soon:  # else the turn would begin later than it does
            self._next.cancel()
            self._plan(0)

    def end_turn_soon(self) -> None:
        """End the turn like `end_turn`, from another thread."""
        self.loop.call_soon_threadsafe(self.end_turn)

    def _on_alarm(self) -> None:
        """The descriptor stays readable: it is heard once."""
        self.loop.remove_reader(stop_alarm())
        self.end_turn()

    def close(self) -> None:
        """Close the loop: nothing can run on it any more."""
        self.loop.close()
