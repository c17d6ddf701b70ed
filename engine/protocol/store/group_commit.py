"""Whether a flush waits for the producers that the last one answered, to take their next messages to disk, too.

Implements: GroupCommitService, which flushes what is there as soon as it may
A producer that sends one message after another is answered by a flush and sends again a little later, when the next
flush has begun without it: so producers form two halves, and each flush serves one half. Together they need half as
many flushes, but the disk rests until all have sent again. Which way is faster depends on disk, processors and clients.
So both are tried for some flushes, and the one that brought more messages to disk a second is kept for a while.
"""

from __future__ import annotations

from statistics import median

WAIT_MAX_NS = 2_000_000
BLOCK, BLOCKS = 16, 5  # flushes of a try, tries of either way
SETTLED = 2048  # flushes until it is tried again
MARGIN = 1.05  # by which waiting has to be the better way
STEPS = 16  # a flush's usual time is followed by a part of it


class GroupCommit:
    """When one flusher waits. Messages are counted from any number, which only grows; so does the time."""

    def __init__(self) -> None:
        self.waits = False
        self._flush_ns = self._ended_ns = 0  # what one takes usually; when the last one ended
        self._began_at = self._ended_at = 0  # messages when the last flush began, and when it ended
        self._covered = 0  # messages that it brought to disk
        self._flushes, self._block_at, self._block_ns = 0, 0, 0  # of this try: how many, messages and time as it began
        self._rates: dict[bool, list[float]] = {False: [], True: []}  # by way, while it is tried out
        self._settled = False

    def goal(self, messages: int) -> int:
        """Return how many messages the next flush waits for; `messages` itself: it waits for no more."""
        return max(messages, self._ended_at + self._covered) if self.waits else messages

    def wait_ns(self, now_ns: int) -> int:
        """Return how long it may wait for the others: until the disk has rested for as long as a flush takes."""
        return min(self._ended_ns + self._flush_ns - now_ns, WAIT_MAX_NS)

    def flushed(self, began_at: int, ended_at: int, began_ns: int, ended_ns: int) -> None:
        """A flush is over, of the messages that were there when it began; so many were there when it ended."""
        took_ns = ended_ns - began_ns
        self._covered = max(0, began_at - self._began_at)
        self._began_at, self._ended_at, self._ended_ns = began_at, ended_at, ended_ns
        if not self._flush_ns:
            self._flush_ns = took_ns
        else:  # to the middle of them: some take very long
            step = self._flush_ns // STEPS + 1
            self._flush_ns += min(step, took_ns - self._flush_ns) if took_ns > self._flush_ns else -step
        self._flushes += 1
        if self._flushes == (SETTLED if self._settled else BLOCK):
            self._end_block()

    def _end_block(self) -> None:
        took_ns = max(1, self._ended_ns - self._block_ns)
        rate = (self._began_at - self._block_at) / took_ns
        self._flushes, self._block_at, self._block_ns = 0, self._began_at, self._ended_ns
        tried = self._rates[self.waits]
        if self._settled:
            self._rates, self._settled = {False: [], True: []}, False
        elif len(tried) < BLOCKS:
            tried.append(rate)
        self.waits = not self.waits
        if all(len(rates) == BLOCKS for rates in self._rates.values()):
            self.waits = median(self._rates[True]) > MARGIN * median(self._rates[False])
            self._settled = True
