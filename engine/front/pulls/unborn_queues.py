"""Queues without a slot, as no message ever came: who waits for one hears when it has its first.

Implements: nothing of RocketMQ's, which makes a consume queue when it is asked for
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.board.queue_ends import NO_SLOT
from engine.front.pulls.log_view import LogView, Queue


class UnbornQueues:
    """Queues without a slot that pulls wait for. A look costs nothing while no queue is new."""

    def __init__(self, view: LogView) -> None:
        self._view, self._named = view, 0  # of all queues that there are, those that were looked at
        self._queues: set[Queue] = set()

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, queue: Queue) -> bool:
        return queue in self._queues

    def slot_of(self, queue: Queue) -> int:
        """Return the queue's slot; a queue without one is watched from now on."""
        slot = self._view.slot_of(queue)
        if slot == NO_SLOT:
            if not self._queues:
                self._named = self._view.named
            self._queues.add(queue)
        return slot

    def discard(self, queue: Queue) -> None:
        """Nobody waits for it any more."""
        self._queues.discard(queue)

    def clear(self) -> None:
        """Forget all queues without a slot."""
        self._queues.clear()

    def born(self) -> Iterator[tuple[Queue, int]]:
        """Yield the watched queues that have a slot now, with it, and stop watching them."""
        if not self._queues:
            return
        news, first = self._view.named_from(self._named), self._named
        self._named += len(news)
        for slot, queue in enumerate(news, first):
            if queue in self._queues:
                self._queues.remove(queue)
                yield queue, slot
