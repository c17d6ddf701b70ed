"""What all fronts have counted up to a moment: they are asked, and waited for as long as a scrape may be.

Implements: nothing of RocketMQ's, whose broker counts in one process
"""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import suppress

from engine.monitoring.counted import Counts
from engine.protocol.remoting.answers import Json
from engine.remoting.links.front_links import FrontLinks

SECONDS = 1.0  # for fronts that hang or are just begun


class FrontTotals:
    """Collects all fronts' counts in `counts`."""

    def __init__(self, links: FrontLinks, counts: Counts) -> None:
        self._links, self._counts = links, counts
        self._numbers = itertools.count(time.monotonic_ns())  # a predecessor's are answered by the same roles
        self._missing: dict[int, set[int]] = {}  # fronts that have not answered, by the number of what was asked
        self._heard = asyncio.Event()

    async def settle(self) -> None:
        """Wait until every front has said what it counted before this was called."""
        number = next(self._numbers)
        missing = self._missing[number] = self._links.ask_counts(number)
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                while missing:
                    self._heard.clear()
                    await self._heard.wait()
        del self._missing[number]

    def take(self, fields: Json) -> None:
        """A front says what it counted: of its own accord, or because it was asked."""
        for key, row in fields["rows"]:
            self._counts.add(key, row)
        self._missing.get(fields.get("number", 0), set()).discard(fields.get("front"))
        self._heard.set()
