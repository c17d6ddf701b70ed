"""The event loop of a role: it runs while the role idles, until the clock is to be looked at or the stop comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import uvloop

from engine.role import stop_alarm


class RoleLoop:
    """The event loop `loop` of one role."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._ends_turn = self._is_serving = False
        self.loop.add_reader(stop_alarm(), self._on_alarm)

    def serve(self, timeout_ms: int) -> None:
        """Run for that long, or until `end_turn`."""
        self._is_serving = True
        wait_ms = 0 if self._ends_turn else timeout_ms + 1  # the loop's clock is that much behind at most
        timer = self.loop.call_later(wait_ms / 1000, self._stop)
        try:
            self.loop.run_forever()
        finally:
            timer.cancel()
            self._is_serving = self._ends_turn = False

    def run(self, work: Awaitable[Any]) -> None:
        """Run until that is done."""
        self.loop.run_until_complete(work)

    def end_turn(self) -> None:
        """Have the clock looked at soon."""
        self._ends_turn = True
        self._stop()

    def end_turn_soon(self) -> None:
        """End the turn like `end_turn`, from another thread."""
        self.loop.call_soon_threadsafe(self.end_turn)

    def _stop(self) -> None:
        """Once a turn: a second stop would end the next run."""
        if self._is_serving:
            self._is_serving = False
            self.loop.stop()

    def _on_alarm(self) -> None:
        """The descriptor stays readable: it is heard once."""
        self.loop.remove_reader(stop_alarm())
        self.end_turn()

    def close(self) -> None:
        """Close the loop: nothing can run on it any more."""
        self.loop.close()
