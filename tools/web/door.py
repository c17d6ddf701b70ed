"""Who may keep a connection to the console: a silent one not for long, and none of many silent ones anybody else out.

uvicorn's time-out begins behind a first answer, and what it bounds are connections, whether they ask anything or not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0  # from a connection, or from an answer, to the end of the next request's head
WRITE_SECONDS = 10.0  # one that takes nothing of a long answer for so long is hung up on
WAITING_MAX, WAITING_MAX_OF_ONE = 64, 32  # connections that ask nothing now: together, and of one address


class Door(H11Protocol):
    """One connection. `waiting` has those of all that ask nothing now, in the order in which they began to wait."""

    waiting: ClassVar[dict[Door, None]] = {}

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._late: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give the client a limited time to ask; where too many are silent, close at once."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Look for a whole request head among the bytes."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """The next one has to come soon."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """Give the client a limited time to read its response."""
        super().pause_writing()
        self._stuck = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the timeout on writing: the client reads its response again."""
        super().resume_writing()
        self._take_off()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeouts of a closed connection."""
        self._go_on()
        self._take_off()
        super().connection_lost(exc)

    def _look(self) -> None:
        """A request is under way, or is to come."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._go_on()
        elif self._late is None and not self.transport.is_closing():
            self._wait()

    def _wait(self) -> None:
        self._late = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)
        self.waiting[self] = None
        if (one := self._too_many()) is not None:
            one.transport.abort()
            one._go_on()

    def _too_many(self) -> Door | None:
        """The oldest of an address that has too many, or of the one that has most where all together are too many."""
        addresses = Counter(one.address for one in self.waiting)
        address, count = self.address, addresses[self.address]
        if count <= WAITING_MAX_OF_ONE:
            if len(self.waiting) <= WAITING_MAX:
                return None
            ((address, _count),) = addresses.most_common(1)
        return next(one for one in self.waiting if one.address == address)

    @property
    def address(self) -> str:
        """Return the client's address, or ""."""
        return self.client[0] if self.client else ""

    def _take_off(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _go_on(self) -> None:
        self.waiting.pop(self, None)
        if self._late is not None:
            self._late.cancel()
            self._late = None
