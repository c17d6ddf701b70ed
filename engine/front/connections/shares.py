"""Shares of a front's loop turn among connections that ask for much: all others are served in each turn.

Implements: nothing of RocketMQ's, whose threads share CPUs
A connection that had its turn and has asked for more waits in line; so does one that pulls, once this loop turn's time
for pulls is over. While some wait, or the time is over, a turn makes few bytes of answers for each of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

TURN_NS = 5_000_000  # of one loop turn, for pulls and for those in line: sends come between two turns
FEW = 4  # that wait in line, and each is still answered as one alone
SHARE_BYTES = 64 * 1024  # of answers made at a time, where more wait


class InLine(Protocol):
    """A connection that waits for its share of a turn."""

    def go_on(self) -> None:
        """Serve what is left of what it asked; `had_turn` where there is still more."""


class Shares:
    """Shares of one front's loop turns. `call_soon` runs a function in the next loop turn; `clock_ns` is monotonic."""

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._call_soon, self._clock_ns = call_soon, clock_ns
        self._line: deque[InLine] = deque()
        self._left_ns, self._is_due = TURN_NS, False

    @property
    def is_over(self) -> bool:
        """Whether this loop turn has no time for more pulls."""
        return self._left_ns <= 0

    @property
    def room(self) -> int | None:
        """Return how many bytes of answers are made for one connection now; None: as for one that is alone."""
        return SHARE_BYTES if self._left_ns <= 0 or len(self._line) > FEW else None

    def spend(self, taken_ns: int) -> None:
        """Take the time worked for pulls off this turn."""
        self._left_ns -= taken_ns
        self._begin_soon()

    def wait(self, one: InLine) -> None:
        """Put a connection with more to serve behind the others in line."""
        self._line.append(one)
        self._begin_soon()

    def _begin_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._call_soon(self._begin)

    def _begin(self) -> None:
        """A loop turn: those first in line, each once, until the time is over."""
        self._is_due, self._left_ns = False, TURN_NS
        began_ns = self._clock_ns()
        for _ in range(len(self._line)):
            self._line.popleft().go_on()
            if self._clock_ns() - began_ns >= TURN_NS:
                self._left_ns = 0
                break
        if self._line or self.is_over:
            self._begin_soon()
