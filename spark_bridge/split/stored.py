"""Bounds in time of a read's queues: found by queue, and sent to a split in short, as there may be very many."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class StoredBounds(NamedTuple):
    """Bounds of the time at which records of a queue (None: any) were stored: from one moment, before another."""

    topic: str | None
    queue_id: int | None
    from_ms: int | None
    until_ms: int | None


class StoredByQueue:
    """The bounds of one selection, in their order."""

    def __init__(self, stored: Iterable[StoredBounds]) -> None:
        self._all = tuple(stored)
        self._of_all = tuple(bound for bound in self._all if bound.topic is None)
        self._named = {(bound.topic, bound.queue_id): bound for bound in reversed(self._all) if bound.topic is not None}
        before = self._all[: self._all.index(self._of_all[0])] if self._of_all else self._all
        self._first = {(bound.topic, bound.queue_id): bound for bound in reversed(before)}

    def times_of(self, topic: str, queue_id: int) -> tuple[int | None, int | None]:
        """Return the times from the first bounds that match the queue."""
        bound = self._first.get((topic, queue_id), self._of_all[0] if self._of_all else None)
        return (None, None) if bound is None else (bound.from_ms, bound.until_ms)

    def of_queues(self, queues: Iterable[tuple[str, int]]) -> tuple[StoredBounds, ...]:
        """Return the store times that records of these queues, and of no others, have to meet.

        One pair of times where all queues have the same.
        """
        if len(self._all) == len(self._of_all):
            return self._all
        queues = dict.fromkeys(queues)
        own = [self._named[queue] for queue in queues if queue in self._named]
        times = {(bound.from_ms, bound.until_ms) for bound in own}
        if len(times) == 1 and len(own) == len(queues):
            own = [StoredBounds(None, None, *times.pop())]
        return (*self._of_all, *own)
