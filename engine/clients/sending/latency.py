"""Decides how long a producer avoids a broker that failed or answered slowly.

Implements: MQFaultStrategy, LatencyFaultToleranceImpl (4.9)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

LATENCIES_MS = (50, 100, 550, 1000, 2000, 3000, 15_000)
AVOIDED_MS = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
FAILED_MS = 30_000  # a failure counts as an answer after this time
BROKERS_MAX = 4096


def avoided_ms(latency_ms: int) -> int:
    """Return how long a broker that answered after `latency_ms` is avoided, in ms."""
    step = bisect_right(LATENCIES_MS, latency_ms)
    return AVOIDED_MS[step - 1] if step else 0


class LatencyTable:
    """Times until which brokers are avoided. A table that is not `enabled` avoids no broker."""

    def __init__(self, enabled: bool) -> None:
        self._is_enabled = enabled
        self._until_ms: dict[str, int] = {}

    def note(self, broker: str, latency_ms: int, now_ms: int, *, failed: bool = False) -> None:
        """Note how long a broker took to answer a send, or that it failed."""
        if not self._is_enabled:
            return
        if broker not in self._until_ms and len(self._until_ms) >= BROKERS_MAX:
            del self._until_ms[min(self._until_ms, key=lambda name: self._until_ms[name])]
        self._until_ms[broker] = now_ms + avoided_ms(FAILED_MS if failed else latency_ms)

    def is_available(self, broker: str, now_ms: int) -> bool:
        """Whether a broker is not avoided now."""
        return self._until_ms.get(broker, now_ms) <= now_ms

    def soonest(self, brokers: Iterable[str]) -> str:
        """Return the broker that will be available first, the first of several equal ones."""
        return min(brokers, key=lambda broker: self._until_ms.get(broker, 0))
