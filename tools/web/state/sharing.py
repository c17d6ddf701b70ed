"""Live views: one text a second or so, made once however many look; newest only, so nobody who is slow holds it up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tools.web.state.errors import Busy

Make = Callable[[], Awaitable[str]]
STREAMS_MAX = 32


class Shared:
    """One view with its parameters, and who looks at it."""

    def __init__(self, make: Make, interval_seconds: float) -> None:
        self._make, self._interval, self._lock = make, interval_seconds, asyncio.Lock()
        self._number, self._text, self._made_at = 0, "", -interval_seconds
        self.users = 0

    async def behind(self, number: int) -> tuple[int, str]:
        """The newest text whose number is above that one, once there is one."""
        async with self._lock:
            if self._number <= number:
                await asyncio.sleep(max(0.0, self._made_at + self._interval - time.monotonic()))
                text = await self._make()
                self._number, self._text, self._made_at = self._number + 1, text, time.monotonic()
            return self._number, self._text


class Streams:
    """All live views that somebody looks at, up to a bound of those who look."""

    def __init__(self, streams_max: int = STREAMS_MAX) -> None:
        self._shared: dict[str, Shared] = {}
        self._streams_max, self.count = streams_max, 0

    def enter(self) -> None:
        """Count one more reader. Raises Busy."""
        if self.count >= self._streams_max:
            raise Busy(f"{self._streams_max} live views are open; close some of their pages")
        self.count += 1

    def leave(self) -> None:
        """Count a reader that has left."""
        self.count -= 1

    async def texts(self, name: str, make: Make, interval_seconds: float) -> AsyncIterator[str]:
        """The texts of one view from now on, without end."""
        async with self._using(name, make, interval_seconds) as shared:
            number = 0
            while True:
                number, text = await shared.behind(number)
                yield text

    @asynccontextmanager
    async def _using(self, name: str, make: Make, interval_seconds: float) -> AsyncIterator[Shared]:
        shared = self._shared.setdefault(name, Shared(make, interval_seconds))
        shared.users += 1
        try:
            yield shared
        finally:
            shared.users -= 1
            if not shared.users:
                self._shared.pop(name, None)
