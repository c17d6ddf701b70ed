"""How many bytes a connection may still send in this second, and how many it sent in the last one.

Implements: FlowMonitor (spec: ha-protocol, 8 flow control)
RocketMQ's plain connection sends empty frames in a tight loop while nothing is allowed; ours waits for the next window.
"""

from __future__ import annotations

WINDOW_MS = 1000
UNLIMITED = 1 << 62


class FlowMonitor:
    """Counts the bytes of a window of one second; `limit` is haFlowControlEnable's limit, or UNLIMITED."""

    __slots__ = ("_bytes_in_window", "_window_begins_ms", "limit", "transferred_bytes_in_second")

    def __init__(self, now_ms: int, limit: int = UNLIMITED) -> None:
        assert limit > 0
        self.limit = limit
        self.transferred_bytes_in_second = 0
        self._bytes_in_window = 0
        self._window_begins_ms = now_ms

    def turn(self, now_ms: int) -> None:
        """Begin a new window when the last one is over; a clock that went back begins one too."""
        elapsed_ms = now_ms - self._window_begins_ms
        if 0 <= elapsed_ms < WINDOW_MS:
            return
        self.transferred_bytes_in_second = self._bytes_in_window if 0 <= elapsed_ms < 2 * WINDOW_MS else 0
        self._bytes_in_window = 0
        self._window_begins_ms = now_ms

    def add(self, transferred_bytes: int) -> None:
        """Count what was transferred in this window."""
        self._bytes_in_window += transferred_bytes

    def allowed_bytes(self) -> int:
        """How much may still be sent in this window."""
        return max(self.limit - self._bytes_in_window, 0)

    def wait_ms(self, now_ms: int) -> int:
        """How long until more is allowed: 0 when something is allowed now."""
        if self._bytes_in_window < self.limit:
            return 0
        return max(self._window_begins_ms + WINDOW_MS - now_ms, 0)
