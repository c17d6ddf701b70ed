"""Pulls that can be answered now, a part of them in each turn: thousands that wake at once hold up nobody else.

Implements: the thread pool of PullMessageProcessor.executeRequestWhenWakeup, which has no threads here
What is answered to one connection beyond what it takes waits until it has taken it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from engine.front.connections.peer import TURN_SECONDS, Peer
from engine.front.pulls.usual_pulls import Asked


class Woken(NamedTuple):
    """A pull; `is_first`: it was not looked at before."""

    asked: Asked
    is_first: bool
    came_ns: int = 0  # of one that was held, since when

    @property
    def peer(self) -> Peer:
        """Return the connection that sent the pull."""
        return self.asked.peer


class WokenPulls:
    """Pulls of one front that can be answered; `serve` answers one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, serve: Callable[[Woken], None]) -> None:
        self._loop, self._serve = loop, serve
        self._woken: deque[Woken] = deque()
        self._later: dict[int, deque[Woken]] = {}  # by connection, of those who have to read first
        self._is_due = False

    def add(self, pull: Woken) -> None:
        """Add a pull, which `go_on` answers."""
        self._woken.append(pull)

    def go_on(self) -> None:
        """Answer, until all are or others have to have their turn."""
        began = time.monotonic()
        while self._woken:
            pull = self._woken.popleft()
            later = self._later.get(pull.peer.number)
            if later is not None:
                later.append(pull)
            elif self._takes_more(pull.peer):
                self._serve(pull)
            elif pull.peer.is_open:
                self._later[pull.peer.number] = deque((pull,))
                pull.peer.when_taken = partial(self._taken, pull.peer.number)
            if self._woken and time.monotonic() - began > TURN_SECONDS:
                self._go_on_soon()
                return

    @staticmethod
    def _takes_more(peer: Peer) -> bool:
        if peer.room <= 0:
            peer.flush()
        return peer.is_open and peer.room > 0

    def _taken(self, number: int) -> None:
        """A connection has taken most of what was written."""
        later = self._later.pop(number, None)
        if later is not None:
            self._woken += later
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._on_due)

    def _on_due(self) -> None:
        self._is_due = False
        self.go_on()

    def left(self, number: int) -> None:
        """Forget the waiting pulls of a closed connection."""
        self._later.pop(number, None)
