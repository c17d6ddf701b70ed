"""What the tables of consumers, producers and locks share: a member, the error of a full table, a scan in steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

A_STEP = 2000  # entries


@dataclass(slots=True)
class Member:
    """A client of a group, like Java's ClientChannelInfo. `channel` is its connection's number."""

    channel: int
    client_id: str
    language: str
    version: int
    heard_ms: int  # monotonic


class TooMany(Exception):
    """Raised when one more group, member or subscription would be more than a broker keeps; nothing has changed."""

    def __init__(self, what: str, most: int) -> None:
        super().__init__(f"this broker keeps no more than {most} {what}")


class Scan:
    """Looks through a large table in steps, so that no turn is long.

    `work` is given the time, and yields wherever it may be interrupted.
    """

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
