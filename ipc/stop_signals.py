"""The signals that end a command in order, and who handles them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def stop_signals() -> list[signal.Signals]:
    """Those to be handled. A SIGHUP that is ignored stays so: `nohup` keeps a command when its terminal goes."""
    return [one for one in STOP_SIGNALS if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN]


def handle_stop_signals(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Have them call `handler`; the handlers that were there before."""
    return {number: signal.signal(number, handler) for number in stop_signals()}
