"""The event loop of a role: it runs while the role idles, until the clock is to be looked at or the stop comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import uvloop

from engine.role import stop_alarm


class RoleLoop:
    """One loop; `loop` is it."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._ends_turn = asyncio.Event()
        self.loop.add_reader(stop_alarm(), self._on_alarm)

    def serve(self, timeout_ms: int) -> None:
        """Run for that long, or until `end_turn`."""
        self.loop.run_until_complete(self._serve_for(timeout_ms / 1000))

    def run(self, work: Awaitable[Any]) -> None:
        """Run until that is done."""
        self.loop.run_until_complete(work)

    def end_turn(self) -> None:
        """Have the clock looked at soon."""
        self._ends_turn.set()

    def end_turn_soon(self) -> None:
        """As `end_turn`, from another thread."""
        self.loop.call_soon_threadsafe(self.end_turn)

    async def _serve_for(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ends_turn.wait(), seconds)
        self._ends_turn.clear()

    def _on_alarm(self) -> None:
        """The descriptor stays readable: it is heard once."""
        self.loop.remove_reader(stop_alarm())
        self._ends_turn.set()

    def close(self) -> None:
        """Nothing runs on it any more."""
        self.loop.close()
