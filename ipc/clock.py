"""The two clocks. Monotonic time measures: deadlines, paces, ages. Wall time is only written into records, or shown.

The wall clock is set by people and programs, also back; what waits by it may wait for ever. Monotonic times of one
machine may be compared between processes, and mean nothing after a change of boot.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

NS_PER_MS = 1_000_000
EPOCH, MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)


def monotonic_ms() -> int:
    """Milliseconds since the machine started, about: for whatever is compared with a later look at the same clock."""
    return time.monotonic_ns() // NS_PER_MS


def wall_ms() -> int:
    """Milliseconds since the epoch, as RocketMQ's timestamps are."""
    return time.time_ns() // NS_PER_MS


def wall_of(moment_ms: int) -> int:
    """A moment of `monotonic_ms` as the wall clock would show it now; 0 for one that never was, 0."""
    return wall_ms() - (monotonic_ms() - moment_ms) if moment_ms else 0


def ms_of(at: datetime) -> int:
    """Milliseconds since the epoch of a moment, rounded down; one without a zone is local time, as datetime has it."""
    return (at.astimezone(UTC) - EPOCH) // MILLISECOND
