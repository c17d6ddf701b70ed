"""How many bytes a connection may still send in this second, and how many it sent in the last one.

Implements: FlowMonitor (spec: ha-protocol, 8 flow control)
RocketMQ's plain connection sends empty frames in a tight loop while nothing is allowed; ours waits for the next window.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

WINDOW_MS = 1000
UNLIMITED = 1 << 62

# The words: the compiled half of a connection (engine/replication/sender_kernel.py) works on the same.
LIMIT, IN_WINDOW, WINDOW_BEGINS_MS, IN_LAST_WINDOW, WORDS = 0, 1, 2, 3, 4


class FlowMonitor:
    """Counts the bytes of a window of one second; `limit` is haFlowControlEnable's limit, or UNLIMITED."""

    def __init__(self, now_ms: int, limit: int = UNLIMITED) -> None:
        assert limit > 0
        self.words: npt.NDArray[np.int64] = np.array([limit, 0, now_ms, 0], np.int64)

    @property
    def transferred_bytes_in_second(self) -> int:
        """What the window before this one came to."""
        return int(self.words[IN_LAST_WINDOW])

    def turn(self, now_ms: int) -> None:
        """Begin a new window when the last one is over; a clock that went back begins one too."""
        words = self.words
        elapsed_ms = now_ms - int(words[WINDOW_BEGINS_MS])
        if 0 <= elapsed_ms < WINDOW_MS:
            return
        words[IN_LAST_WINDOW] = words[IN_WINDOW] if 0 <= elapsed_ms < 2 * WINDOW_MS else 0
        words[IN_WINDOW] = 0
        words[WINDOW_BEGINS_MS] = now_ms

    def add(self, transferred_bytes: int) -> None:
        """Count what was transferred in this window."""
        self.words[IN_WINDOW] += transferred_bytes

    def allowed_bytes(self) -> int:
        """How much may still be sent in this window."""
        return max(int(self.words[LIMIT] - self.words[IN_WINDOW]), 0)

    def wait_ms(self, now_ms: int) -> int:
        """How long until more is allowed: 0 when something is allowed now."""
        if self.allowed_bytes():
            return 0
        return max(int(self.words[WINDOW_BEGINS_MS]) + WINDOW_MS - now_ms, 0)
