"""Where the queues ended that somebody waits for, when they were looked at last: which of them have more now."""

from __future__ import annotations

import numpy as np

from engine.board.queue_ends import NO_SLOT
from engine.front.pulls.log_view import LogView, Queue
from engine.front.pulls.unborn_queues import UnbornQueues
from ipc.arrays import Words

FIRST_ROOM = 1024


class HeldEnds:
    """Followed queues. One look costs two vectors, however many there are."""

    def __init__(self, view: LogView) -> None:
        self._view = view
        self._slots: Words = np.zeros(FIRST_ROOM, np.int64)
        self._seen: Words = np.zeros(FIRST_ROOM, np.int64)
        self._queues: list[Queue] = []
        self._places: dict[Queue, int] = {}
        self._unborn = UnbornQueues(view)

    def __len__(self) -> int:
        return len(self._queues) + len(self._unborn)

    def follow(self, queue: Queue, end: int) -> None:
        """Look at this queue, too, which was seen to end there."""
        if queue in self._places or queue in self._unborn:
            return
        slot = self._unborn.slot_of(queue)
        if slot != NO_SLOT:
            self._enter(queue, slot, end)

    def _enter(self, queue: Queue, slot: int, end: int) -> None:
        place = len(self._queues)
        if place == len(self._slots):
            self._slots = np.concatenate((self._slots, np.zeros_like(self._slots)))
            self._seen = np.concatenate((self._seen, np.zeros_like(self._seen)))
        self._slots[place], self._seen[place] = slot, end
        self._queues.append(queue)
        self._places[queue] = place

    def forget(self, queue: Queue) -> None:
        """Nobody waits for it any more."""
        self._unborn.discard(queue)
        place = self._places.pop(queue, None)
        if place is None:
            return
        last = self._queues.pop()
        if last != queue:
            end = len(self._queues)
            self._queues[place], self._places[last] = last, place
            self._slots[place], self._seen[place] = self._slots[end], self._seen[end]

    def moved(self) -> list[tuple[Queue, int]]:
        """The queues that have more than when they were looked at last, and where they end now."""
        for queue, slot in self._unborn.born():
            self._enter(queue, slot, 0)
        count = len(self._queues)
        now = self._view.ends.next_offsets[self._slots[:count]]
        changed = np.flatnonzero(now != self._seen[:count])
        self._seen[:count] = now
        return [(self._queues[place], int(now[place])) for place in changed.tolist()]
