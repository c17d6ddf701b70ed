"""Threads for what a role's event loop must not wait for: reading files. A few, and a bounded line before them.

Implements: BrokerController's thread pools of queries and administrators, headSlowTimeMills4QueryThreadPoolQueue
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from engine.protocol.remoting.answers import Refused
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.sending.answers import TIMED_OUT
from ipc.clock import monotonic_ms

BUSY = "[REJECTREQUEST]system busy, start flow control for a while"
P = ParamSpec("P")
T = TypeVar("T")


class WorkPool:
    """Threads of one name; what waits for one for longer than `wait_ms` is refused."""

    def __init__(self, name: str, threads: int, waiting_max: int, wait_ms: int | None = None) -> None:
        self._wait_ms = wait_ms
        self._threads, self._waiting_max = ThreadPoolExecutor(threads, name), waiting_max
        self._numbers = itertools.count()
        self._waiting: dict[int, int] = {}  # since when, by number; oldest first
        self._under_way = 0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the work on a thread. Raises Refused where too many wait, or it waits too long itself."""
        if self._under_way >= self._waiting_max:
            raise Refused(ResponseCode.SYSTEM_BUSY, BUSY)
        self._under_way += 1
        number = next(self._numbers)
        self._waiting[number] = monotonic_ms()

        def begun() -> T:
            self._waiting.pop(number, None)
            return work(*args, **kwargs)

        future = self._threads.submit(begun)
        try:
            return await self._within(future)
        finally:
            future.cancel()
            self._waiting.pop(number, None)
            self._under_way -= 1

    async def _within(self, future: Future[T]) -> T:
        """Await the work. Raises Refused where its time is over before it began."""
        wrapped, since_ms = asyncio.wrap_future(future), monotonic_ms()
        if self._wait_ms is not None:
            await asyncio.wait([wrapped], timeout=self._wait_ms / 1000)
            if not wrapped.done() and future.cancel():
                waited = TIMED_OUT.format(monotonic_ms() - since_ms, max(0, self.size - 1))
                raise Refused(ResponseCode.SYSTEM_BUSY, waited)
        return await wrapped

    @property
    def size(self) -> int:
        """Return how many wait for a thread."""
        return len(self._waiting)

    @property
    def head_wait_ms(self) -> int:
        """Return how long the first of them has waited."""
        since = next(iter(tuple(self._waiting.values())), None)
        return 0 if since is None else max(0, monotonic_ms() - since)

    def close(self) -> None:
        """Cancel waiting work; what runs goes on."""
        self._threads.shutdown(wait=False, cancel_futures=True)
