"""Where views are made: they read files and shared memory, or ask a server, in a few threads and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from tools.web.state.errors import Busy

THREADS, WAITING_MAX = 6, 64
Made = TypeVar("Made")


class Threads:
    """A few threads, and a line of bounded length before them."""

    def __init__(self, threads: int = THREADS, waiting_max: int = WAITING_MAX) -> None:
        self._limiter: anyio.CapacityLimiter | None = None  # made in the loop that it belongs to
        self._threads, self._waiting_max, self._waiting = threads, waiting_max, 0

    async def run(self, work: Callable[[], Made]) -> Made:
        """Return what `work` returns or raises. Raises Busy."""
        if self._waiting >= self._waiting_max:
            raise Busy(f"{self._waiting_max} requests are already waiting; try again in a moment")
        self._limiter = self._limiter or anyio.CapacityLimiter(self._threads)
        self._waiting += 1
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._limiter)
        finally:
            self._waiting -= 1
