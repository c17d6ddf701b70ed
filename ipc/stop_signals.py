"""The signals that end a command in order, and who handles them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], None]


def stop_signals() -> list[signal.Signals]:
    """Return the signals to handle, without a SIGHUP that is ignored, as by `nohup`."""
    return [one for one in STOP_SIGNALS if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN]


def has_terminal() -> bool:
    """Whether this process belongs to a terminal, whose end SIGHUP tells it; a service's belong to none."""
    try:
        with open("/proc/self/stat", "rb") as file:
            _state, _parent, _group, _session, terminal, *_more = file.read().rpartition(b")")[2].split()
            return int(terminal) != 0
    except (OSError, ValueError):
        return True


def handle_stop_signals(handler: Handler, on_reload: Handler | None = None) -> dict[int, Any]:
    """Have them call `handler`; the handlers that were there before.

    Without a terminal SIGHUP calls `on_reload`, where it is given.
    """
    by_number = dict.fromkeys(stop_signals(), handler)
    if on_reload is not None and signal.SIGHUP in by_number and not has_terminal():
        by_number[signal.SIGHUP] = on_reload
    return {number: signal.signal(number, chosen) for number, chosen in by_number.items()}
