"""Looks through a large table a part at a time, so that no turn is long."""

from __future__ import annotations

from collections.abc import Callable, Iterator

A_STEP = 2000  # entries


class Scan:
    """`work` is given the time, and yields wherever it may be interrupted."""

    def __init__(self, work: Callable[[int], Iterator[None]]) -> None:
        self._work = work
        self._under_way: Iterator[None] | None = None

    def begin(self, now_ms: int) -> None:
        """Start, unless one is under way."""
        if self._under_way is None:
            self._under_way = self._work(now_ms)

    def step(self) -> bool:
        """Go on; whether there is more to do."""
        if self._under_way is not None and next(self._under_way, self) is self:
            self._under_way = None
        return self._under_way is not None
