"""What a connection may still send in this second, compiled: part of how its next frame is decided.

Implements: FlowMonitor's calculateSpeed and canTransferMaxByteNum (spec: ha-protocol, 8 flow control)
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from enum import IntEnum

from ipc.arrays import Words
from ipc.compiled.kernels import bare_kernel

WINDOW_MS = 1000
STEP_MS = 20  # a window's bytes are allowed step by step: all of them at once would be in the way of other traffic
STEPS = WINDOW_MS // STEP_MS


class FlowWord(IntEnum):
    """The words of a FlowMonitor."""

    LIMIT = 0
    IN_WINDOW = 1
    WINDOW_BEGINS_MS = 2
    IN_LAST_WINDOW = 3
    ELAPSED_MS = 4  # of the window, when the clock was last looked at


@bare_kernel
def turn_window(flow: Words, now_ms: int) -> None:
    """Begin a new window when the last one is over; a clock that went back begins one too."""
    elapsed_ms = now_ms - flow[FlowWord.WINDOW_BEGINS_MS]
    flow[FlowWord.ELAPSED_MS] = elapsed_ms
    if elapsed_ms < 0 or elapsed_ms >= WINDOW_MS:
        flow[FlowWord.IN_LAST_WINDOW] = flow[FlowWord.IN_WINDOW] if 0 <= elapsed_ms < 2 * WINDOW_MS else 0
        flow[FlowWord.IN_WINDOW] = 0
        flow[FlowWord.WINDOW_BEGINS_MS] = now_ms
        flow[FlowWord.ELAPSED_MS] = 0


@bare_kernel
def allowed_bytes(flow: Words) -> int:
    """Return how much may still be sent in this step of the window."""
    steps = flow[FlowWord.ELAPSED_MS] // STEP_MS + 1
    share = -(-flow[FlowWord.LIMIT] // STEPS) * steps
    return max(min(share, flow[FlowWord.LIMIT]) - flow[FlowWord.IN_WINDOW], 0)
