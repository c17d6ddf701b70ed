"""A moment, as it is typed and as it is shown, the same everywhere: UTC, unless a zone is typed.

Typed: milliseconds since 1970; ISO 8601, with a zone or in UTC (2026-11-21T08:30:00+01:00, 2026-11-21 08:30,
2026-11-21); or before now: -90s, -30m, -1h, -2d, -1w. Shown: ISO 8601 in UTC, which may be typed again.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

import click

from ipc.clock import ms_of, wall_ms

LATEST_MS = 253_402_300_799_999  # the year 9999, the last that datetime knows
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
MILLISECONDS, RELATIVE = re.compile(r"[0-9]{1,15}"), re.compile(r"-([0-9]{1,12})(ms|s|m|h|d|w)")
SHAPES = "2026-11-21T08:30:00Z (UTC unless it names a zone), -90s, -1h, -2d, or milliseconds since 1970"


def moment_ms(text: str) -> int:
    """The moment that was typed, in milliseconds since 1970. Raises ValueError."""
    text = text.strip()
    if MILLISECONDS.fullmatch(text):
        return int(text)
    if (before := RELATIVE.fullmatch(text)) is not None:
        return max(0, wall_ms() - int(before[1]) * UNITS_MS[before[2]])
    try:
        moment = datetime.fromisoformat(text)
        return max(0, ms_of(moment if moment.tzinfo else moment.replace(tzinfo=UTC)))
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time; give {SHAPES}") from None


class Moment(click.ParamType[int]):
    """An argument that is a moment; the command gets milliseconds since 1970."""

    name = "time"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return moment_ms(value)
        except ValueError as wrong:
            self.fail(str(wrong), param, ctx)


def time_text(milliseconds: int) -> str:
    """Format a time in ms as UTC, to the millisecond."""
    if not 0 <= milliseconds <= LATEST_MS:
        return f"{milliseconds} ms"
    return f"{_second_text(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=1024)
def _second_text(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
