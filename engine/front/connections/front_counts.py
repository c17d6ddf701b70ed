"""What a front counts off the fast path, and how long requests took: said to the clients role some times a second.

Implements: the fronts' half of BrokerMetricsManager's and RemotingMetricsManager's figures
Of fast sends nothing is counted one by one: their latencies are the ring's, looked at once a second.
"""

from __future__ import annotations

import time

import numpy as np

from engine.front.connections.relay import Json, Relay
from engine.monitoring.counted import KEPT, NS_PER_MS, REMOTING, REQUESTS, RPC, Counts
from engine.protocol.remoting.codes import RequestCode
from engine.shared_memory.latencies import COUNTS, LatencyWord, lowest_of
from ipc.arrays import Words

SAID_EACH_MS, RING_EACH_MS = 200, 1000
PULL = REQUESTS[RequestCode.PULL_MESSAGE]
BOUNDS = KEPT[RPC].bounds


class FrontCounts(Counts):
    """Counts that one front sends to the clients role."""

    def __init__(self, relay: Relay) -> None:
        super().__init__()
        self._relay, self._say_at_ms, self._look_at_ms = relay, 0, 0
        self.fast_code = int(RequestCode.SEND_MESSAGE_V2)  # with which fast sends come: of the last one seen
        lowest_ms = np.array([lowest_of(index) // 1000 for index in range(COUNTS)])
        self._buckets = np.searchsorted(np.array(BOUNDS), lowest_ms)  # of each that the ring has
        self._ring: Words | None = None  # as it was looked at last
        self._others: Words = np.zeros(len(BOUNDS) + 1, np.int64)  # puts of the ring that were since

    def pulled(self, began_ns: int, *, was_held: bool) -> None:
        """A pull on the fast path was answered, which was held, or slow."""
        took_ms = (time.monotonic_ns() - began_ns) // NS_PER_MS
        self.observe(RPC, took_ms, REMOTING, PULL, "success", "true" if was_held else "false", "success")

    def pulled_at_once(self, count: int) -> None:
        """Count pulls that took less than a millisecond."""
        if count > 0:
            self.add((RPC, REMOTING, PULL, "success", "false", "success"), [count, *[0] * (len(BOUNDS) + 1)])

    def put(self, began_ns: int) -> None:
        """A put that was no fast send is in the ring's latencies, too."""
        took_ms = (time.monotonic_ns() - began_ns) // NS_PER_MS
        self._others[np.searchsorted(BOUNDS, took_ms)] += 1

    def turn(self, now_ms: int) -> None:
        """Send the counts to the clients role when they are due."""
        if self.rows and now_ms >= self._say_at_ms:
            self._say_at_ms = now_ms + SAID_EACH_MS
            self._relay.tell("counted", {"rows": self.take()})

    def say(self, asked: Json) -> None:
        """The clients role wants to know all of it, before it shows what the log has."""
        self._relay.tell("counted", {"rows": self.take(), **asked})

    def fast_sends(self, ring: Words, now_ms: int) -> None:
        """Take, once a second, the fast sends from the latencies of the ring's puts.

        A put that others counted a millisecond away is made up for by the next one in that place.
        """
        if now_ms < self._look_at_ms:
            return
        if self._ring is None:
            self._ring = ring.copy()
        self._look_at_ms = now_ms + RING_EACH_MS
        counts = ring[LatencyWord.COUNTS : LatencyWord.COUNTS + COUNTS]
        moved = counts - self._ring[LatencyWord.COUNTS : LatencyWord.COUNTS + COUNTS]
        every = np.bincount(self._buckets, moved, len(BOUNDS) + 1).astype(np.int64)
        total, fast = int(every.sum()), every - self._others
        self._others = np.maximum(-fast, 0)
        counts_of_fast: list[int] = np.maximum(fast, 0).tolist()
        if any(counts_of_fast):
            sum_ms = int(ring[LatencyWord.SUM_US] - self._ring[LatencyWord.SUM_US]) // 1000
            key = RPC, REMOTING, REQUESTS[self.fast_code], "success", "false", "success"
            self.add(key, [*counts_of_fast, sum_ms * sum(counts_of_fast) // total])
        self._ring = ring.copy()
