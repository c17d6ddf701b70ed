"""A moment as text, the same in all views."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

LATEST_MS = 253_402_300_799_999  # the year 9999, the last that datetime knows


def time_text(milliseconds: int) -> str:
    """UTC, to the millisecond."""
    if not 0 <= milliseconds <= LATEST_MS:
        return f"{milliseconds} ms"
    return f"{_second_text(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=1024)
def _second_text(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
