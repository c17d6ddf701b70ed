"""Sums as they were some seconds ago: what a rate is the difference to."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

WINDOW_MS = 10_000

Sums = TypeVar("Sums")


class Window(Generic[Sums]):
    """The looks of the last seconds, two at least."""

    def __init__(self) -> None:
        self._past: deque[tuple[int, Sums]] = deque()

    def begin(self, now_ms: int, sums: Sums) -> tuple[Sums, float]:
        """(the sums where the window begins, at the first look these; what makes a difference to them one a second)."""
        self._past.append((now_ms, sums))
        while len(self._past) > 2 and now_ms - self._past[1][0] >= WINDOW_MS:
            self._past.popleft()
        began_ms, before = self._past[0]
        return before, 1000 / max(1, now_ms - began_ms)

    def clear(self) -> None:
        """Begin anew: the rows are others."""
        self._past.clear()
