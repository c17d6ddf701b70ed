"""A queue that is assigned to a member: what was pulled, what was handed out, and what may be committed.

Implements: ProcessQueue
What waits is in blocks, whose offsets do not overlap. What was handed out is a message, or a block as a whole.
It knows no threads and no clock. Whoever shares it between threads holds a lock (`shelf`).
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import NamedTuple

from engine.clients.blocks import Block, MappedMessage, Origin
from engine.clients.cluster import MASTER, Place


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
        self.end = 0  # of the queue, as the broker, or the store that is read here, said last
        self.broker_id = MASTER  # from which it is pulled
        self.is_at_end = self.is_paused = self.is_dropped = False
        self.pulled_ms = self.taken_ms = 0
        self.lost = 0  # offsets that were deleted before they were read
        self.rests_until = self.refused_until = 0.0  # monotonic; `refused_until` is for reads of mapped files alone
        self.locked_until = math.inf  # monotonic: from when on another member may have the queue's lock
        self.asks_until = 0.0  # monotonic: when the member that had it before has surely committed its last offset
        self.waiting = 0  # messages that nobody has taken yet
        self._waiting: deque[Block] = deque()  # ascending
        self._left: OrderedDict[int, int] = OrderedDict()  # bytes of what is in hand, by its first offset, ascending
        self._bytes = 0  # of all that waits or is in hand

    @property
    def handed_out(self) -> int:
        """How many messages, or blocks of them, were taken and are not done."""
        return len(self._left)

    @property
    def consumed_to(self) -> int:
        """The offset up to which all is done: what may be committed."""
        first = next(iter(self._left)) if self._left else self.pulled_to
        return min(first, self._waiting[0].first) if self._waiting else first

    @property
    def lag(self) -> int:
        """How many offsets of the queue are not done."""
        return max(0, self.end - self.consumed_to)

    def is_full(self, bounds: Bounds) -> bool:
        """Whether nothing more should be pulled now."""
        span = self.pulled_to - self.consumed_to
        is_many = self.waiting + len(self._left) >= bounds.messages
        return is_many or self._bytes >= bounds.bytes or span >= bounds.span

    def pulled(self, blocks: Sequence[Block], next_offset: int) -> None:
        """Take blocks in the order of their offsets. A message that is there already is left out."""
        for block in blocks:
            block.skip_below(self.pulled_to)
            if len(block):
                self._waiting.append(block)
                self.waiting += len(block)
                self._bytes += block.body_bytes
                self.pulled_to = block.last + 1
        self.pulled_to = max(self.pulled_to, next_offset)

    def may_hand_out(self, now: float) -> bool:
        """Whether `take` hands out a message at this (monotonic) time."""
        if not self.waiting or self.is_paused or self.is_dropped or not self.rests_until <= now < self.locked_until:
            return False
        return not (self.in_order and self.handed_out)

    def take(self, most: int) -> list[MappedMessage]:
        """Hand out messages, the oldest first."""
        messages: list[MappedMessage] = []
        while self._waiting and len(messages) < most:
            messages += self._waiting[0].take(most - len(messages))
            self._drop_empty()
        self.waiting -= len(messages)
        for message in messages:
            self._hold(message.queue_offset, len(message.body))
        return messages

    def take_blocks(self, most: int, origin: Origin | None) -> list[Block]:
        """Hand out blocks that a batch can have together, and with those of an origin, of `most` messages."""
        blocks: list[Block] = []
        while self._waiting and most > 0 and (origin is None or self._waiting[0].origin.joins(origin)):
            block = self._waiting[0].take_block(most)
            self._drop_empty()
            self._hold(block.first, block.body_bytes)
            self.waiting -= len(block)
            most, origin = most - len(block), block.origin
            blocks.append(block)
        return blocks

    def _drop_empty(self) -> None:
        if not len(self._waiting[0]):
            self._waiting.popleft()

    def _hold(self, first: int, size: int) -> None:
        is_last = not self._left or next(reversed(self._left)) < first
        self._left[first] = size
        if not is_last:  # what was given back is taken again
            self._left = OrderedDict(sorted(self._left.items()))

    def done(self, first: int, turn: int) -> None:
        """What was handed out in `turn`, and begins at an offset, needs no more work."""
        if turn == self.turn:
            self._bytes -= self._left.pop(first, 0)

    def again(self, block: Block, turn: int, until: float) -> None:
        """Hand something out once more, in its place before what waits, and nothing of the queue before `until`."""
        if turn == self.turn and self._left.pop(block.first, None) is not None:
            behind = (place for place, one in enumerate(self._waiting) if one.first > block.first)
            self._waiting.insert(next(behind, len(self._waiting)), block)
            self.waiting += len(block)
            self.rests_until = max(self.rests_until, until)

    def read_from(self, offset: int) -> None:
        """Forget what is here, and go on at another offset."""
        self.turn += 1
        self._waiting.clear()
        self._left.clear()
        self.waiting = self._bytes = 0
        self.pulled_to, self.committed, self.is_at_end, self.asks_until = offset, -1, False, 0.0
