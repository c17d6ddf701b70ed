"""How fast topics grow: the difference of what was counted at two moments, kept for those who look."""

from __future__ import annotations

import threading
import time

Counts = dict[str, tuple[int, int]]
APART_SECONDS = 2.0
FORGET_SECONDS = 60.0  # nobody looked for so long: a mean over that time says nothing of now


class Rates:
    """Rates of all stores' topics; bounded by what a broker counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[int, tuple[float, Counts]] = {}
        self._rates: dict[int, dict[str, tuple[float, float]]] = {}

    def of(self, store: int, counts: Counts) -> dict[str, tuple[float, float]]:
        """(messages, bytes) a second by topic; nothing at the first look."""
        now = time.monotonic()
        with self._lock:
            at, before = self._last.get(store, (-FORGET_SECONDS, {}))
            elapsed = now - at
            if elapsed >= APART_SECONDS:
                self._last[store] = now, counts
                self._rates[store] = (
                    {}
                    if elapsed > FORGET_SECONDS
                    else {
                        topic: (
                            max(0, messages - before[topic][0]) / elapsed,
                            max(0, size - before[topic][1]) / elapsed,
                        )
                        for topic, (messages, size) in counts.items()
                        if topic in before
                    }
                )
            return self._rates.get(store, {})
