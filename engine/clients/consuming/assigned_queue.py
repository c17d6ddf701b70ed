"""A queue that is assigned to a member: what was pulled, what was handed out, and what may be committed.

Implements: ProcessQueue
It knows no threads and no clock. Whoever shares it between threads holds a lock (`shelf`).
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import NamedTuple

from engine.clients.cluster import MASTER, Place
from store.message.record import Message


class Bounds(NamedTuple):
    """What a member holds of one queue before it stops pulling. `span`: offsets from the first unacknowledged one."""

    messages: int = 1000
    bytes: int = 32 << 20
    span: int = 2000


DEFAULT_BOUNDS = Bounds()


class AssignedQueue:
    """One queue, read from `offset`. Messages are handed out `in_order`: none while one before it is not done."""

    def __init__(self, place: Place, offset: int, *, in_order: bool = False) -> None:
        self.place, self.in_order = place, in_order
        self.pulled_to = self.committed = offset
        self.turn = 0  # counts up when the queue is read anew from elsewhere: what was handed out before is void
        self.end = offset  # of the queue, as the broker said last
        self.broker_id = MASTER  # from which it is pulled
        self.is_at_end = self.is_paused = self.is_dropped = False
        self.pulled_ms = self.taken_ms = 0
        self.lost = 0  # offsets that were deleted before they were read
        self.rests_until = self.refused_until = 0.0  # monotonic; `refused_until` is for reads of mapped files alone
        self.locked_until = math.inf  # monotonic: from when on another member may have the queue's lock
        self._waiting: deque[Message] = deque()
        self._left: OrderedDict[int, int] = OrderedDict()  # bytes of those not done, by offset, ascending
        self._left_bytes = 0

    @property
    def waiting(self) -> int:
        """How many messages nobody has taken yet."""
        return len(self._waiting)

    @property
    def handed_out(self) -> int:
        """How many messages were taken and are not done."""
        return len(self._left) - len(self._waiting)

    @property
    def consumed_to(self) -> int:
        """The offset up to which all is done: what may be committed."""
        return next(iter(self._left)) if self._left else self.pulled_to

    @property
    def lag(self) -> int:
        """How many offsets of the queue are not done."""
        return max(0, self.end - self.consumed_to)

    def is_full(self, bounds: Bounds) -> bool:
        """Whether nothing more should be pulled now."""
        span = self.pulled_to - self.consumed_to
        return len(self._left) >= bounds.messages or self._left_bytes >= bounds.bytes or span >= bounds.span

    def pulled(self, messages: Sequence[Message], next_offset: int) -> None:
        """Take messages in the order of their offsets. A message that is there already is left out."""
        last = next(reversed(self._left), -1)
        for message in messages:
            if message.queue_offset > last:
                last, size = message.queue_offset, len(message.body)
                self._left[last] = size
                self._left_bytes += size
                self._waiting.append(message)
        self.pulled_to = max(self.pulled_to, next_offset)

    def may_hand_out(self, now: float) -> bool:
        """Whether `take` hands out a message at this (monotonic) time."""
        if not self._waiting or self.is_paused or self.is_dropped or not self.rests_until <= now < self.locked_until:
            return False
        return not (self.in_order and self.handed_out)

    def take(self, most: int) -> list[Message]:
        """Hand out messages, the oldest first."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def done(self, offset: int, turn: int) -> None:
        """A message that was handed out in `turn` needs no more work."""
        if turn == self.turn:
            self._left_bytes -= self._left.pop(offset, 0)

    def again(self, message: Message, turn: int, until: float) -> None:
        """Hand a message out once more, before those that wait, and nothing of the queue before `until`."""
        if turn == self.turn and message.queue_offset in self._left:
            self._waiting.appendleft(message)
            self.rests_until = max(self.rests_until, until)

    def read_from(self, offset: int) -> None:
        """Forget what is here, and go on at another offset."""
        self.turn += 1
        self._waiting.clear()
        self._left.clear()
        self._left_bytes = 0
        self.pulled_to, self.committed, self.is_at_end = offset, -1, False
