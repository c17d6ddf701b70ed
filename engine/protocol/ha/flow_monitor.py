"""How many bytes a connection may still send in this second, and how many it sent in the last one.

Implements: FlowMonitor (spec: ha-protocol, 8 flow control)
RocketMQ's plain connection sends empty frames in a tight loop while nothing is allowed; slipstream waits for the
next window.
"""

from __future__ import annotations

import numpy as np

from engine.protocol.ha.flow_kernel import STEP_MS, WINDOW_MS, FlowWord, allowed_bytes, turn_window
from ipc.arrays import Words

UNLIMITED = 1 << 62


class FlowMonitor:
    """Counts the bytes of a window of one second; `limit` is haFlowControlEnable's limit, or UNLIMITED."""

    def __init__(self, now_ms: int, limit: int = UNLIMITED) -> None:
        assert limit > 0
        self.words: Words = np.zeros(len(FlowWord), np.int64)
        self.words[[FlowWord.LIMIT, FlowWord.WINDOW_BEGINS_MS]] = limit, now_ms

    def bound(self, limit: int) -> None:
        """Let it be another limit from now on, for the window that runs, too."""
        self.words[FlowWord.LIMIT] = limit

    def turn(self, now_ms: int) -> None:
        """Begin a new window when the last one is over; a clock that went back begins one too."""
        turn_window(self.words, now_ms)

    def add(self, transferred_bytes: int) -> None:
        """Count what was transferred in this window."""
        self.words[FlowWord.IN_WINDOW] += transferred_bytes

    def allowed_bytes(self) -> int:
        """Return how much may still be sent in this window."""
        return int(allowed_bytes(self.words))

    def wait_ms(self, now_ms: int) -> int:
        """Return how long until more is allowed: 0 when something is allowed now."""
        if self.allowed_bytes():
            return 0
        elapsed_ms = now_ms - int(self.words[FlowWord.WINDOW_BEGINS_MS])
        is_spent = self.words[FlowWord.IN_WINDOW] >= self.words[FlowWord.LIMIT]
        return max(WINDOW_MS - elapsed_ms if is_spent else STEP_MS - elapsed_ms % STEP_MS, 0)
