"""From where on a log has its history, in a line for people."""

from __future__ import annotations

from store.reading.history import History
from tools.common.moments import time_text


def history_text(history: History | None) -> str:
    """Offset and time of the first message."""
    if history is None:
        return "history: not known"
    below = "" if history.from_offset == 0 else "; earlier messages have expired or were never copied"
    if history.from_ms is None:
        return f"history from offset {history.from_offset:,} on, no message yet{below}"
    return f"history from offset {history.from_offset:,} on, stored {time_text(history.from_ms)}{below}"
