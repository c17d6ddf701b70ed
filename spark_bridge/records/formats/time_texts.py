"""Times and dates as texts, read by the rules of Spark's `from_json`, which are those of its casts.

Sources: `SparkDateTimeUtils.parseTimestampString`, `stringToDate`; `java.time.LocalDateTime.atZone` for a time that a
zone has twice (the earlier one counts) or not at all (it moves by the gap).
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, tzinfo

from spark_bridge.options.zones import zone_of
from store.epochs import INT64_MAX

DAY_S, MICRO = 86_400, 1_000_000
CYCLE_YEARS, CYCLE_DAYS = 400, 146_097  # after which dates have the same days of the week
EPOCH = date(1970, 1, 1).toordinal()
GREGORIAN = -141_427  # days of 1582-10-15: earlier numbers of days were another calendar's
DAYS_MAX = (1 << 31) - 1
BLANKS = "".join(map(chr, [*range(0x21), 0x7F]))
_CLOCK = r"(\d\d?)(?::(\d\d?)(?::(\d\d?)(?:\.(\d*))?(\D.*)?)?)?"
_TIME = re.compile(rf"([+-]?)(\d{{4,6}})(?:-(\d\d?)(?:-(\d\d?)(?:[ T]{_CLOCK})?)?)?", re.DOTALL)
_JUST_TIME = re.compile(
    r"(?:T(\d\d?)(?::(\d\d?)(?::(\d\d?)(?:\.(\d*))?(\D.*)?)?)?"
    r"|(\d\d?):(\d\d?)(?::(\d\d?)(?:\.(\d*))?(\D.*)?)?)",
    re.DOTALL,
)
_DATE = re.compile(r"([+-]?)(\d{4,7})(?:-(\d\d?)(?:-(\d\d?)(?:[ T].*)?)?)?", re.DOTALL)


def micros_of(text: str, zone: tzinfo) -> int | None:
    """Microseconds since 1970 in UTC of a time, in `zone` unless it says its own; None where it is no time."""
    micros = _micros(text, zone)
    return _micros(text.replace("GMT", ""), zone) if micros is None and "GMT" in text else micros


def _micros(text: str, zone: tzinfo) -> int | None:
    parts = _parts(text.strip(BLANKS), zone)
    if parts is None:
        return None
    days, seconds, micro, said = parts
    try:
        its = zone if said is None else zone_of(said.strip(BLANKS))
    except ValueError:
        return None
    return _fitting((days * DAY_S + seconds - _offset_s(days, seconds, its)) * MICRO + micro)


def local_micros_of(text: str) -> int | None:
    """Microseconds since 1970 of a time that has no zone; None where it is no time, or has one."""
    match = _TIME.fullmatch(text.strip(BLANKS))
    parts = None if match is None else _dated(match)
    if parts is None or parts[3] is not None:
        return None
    return _fitting((parts[0] * DAY_S + parts[1]) * MICRO + parts[2])


def days_of(text: str) -> int | None:
    """Return a date's days since 1970; None for an invalid one. What follows a blank or a T is ignored."""
    match = _DATE.fullmatch(text.strip(BLANKS))
    if match is not None:
        days = _days(match[1], match[2], match[3], match[4])
        return days if days is None or -DAYS_MAX - 1 <= days <= DAYS_MAX else None
    number = re.fullmatch(r"[+-]?\d{1,10}", text)  # days, as Spark 1.5 wrote them
    return int(text) if number is not None and GREGORIAN <= int(text) <= DAYS_MAX else None


def _parts(text: str, zone: tzinfo) -> tuple[int, int, int, str | None] | None:
    """Days, seconds, microseconds, and the zone that is said."""
    match = _TIME.fullmatch(text)
    if match is not None:
        return _dated(match)
    match = _JUST_TIME.fullmatch(text)
    if match is None:
        return None
    groups = match.groups()
    clock = _clock(*(groups[:5] if groups[5] is None else groups[5:]))
    return None if clock is None else (datetime.now(zone).date().toordinal() - EPOCH, *clock)


def _dated(match: re.Match[str]) -> tuple[int, int, int, str | None] | None:
    days, clock = _days(match[1], match[2], match[3], match[4]), _clock(*match.groups()[4:])
    return None if days is None or clock is None else (days, *clock)


def _clock(
    hour: str | None, minute: str | None, second: str | None, fraction: str | None, said: str | None
) -> tuple[int, int, str | None] | None:
    h, m, s = int(hour or 0), int(minute or 0), int(second or 0)
    if h > 23 or m > 59 or s > 59:
        return None
    return h * 3600 + m * 60 + s, int((fraction or "")[:6].ljust(6, "0")), said


def _days(sign: str, year: str, month: str | None, day: str | None) -> int | None:
    cycles, within = divmod(int(sign + year), CYCLE_YEARS)
    try:
        days = date(within + CYCLE_YEARS, int(month or 1), int(day or 1)).toordinal() - EPOCH
    except ValueError:
        return None
    return days + (cycles - 1) * CYCLE_DAYS


def _offset_s(days: int, seconds: int, zone: tzinfo) -> int:
    """Return how far the zone is before UTC at its own time, taken in a like year where Python lacks the year."""
    ordinal = days + EPOCH
    last = date.max.toordinal()
    if ordinal > last:
        ordinal = last - CYCLE_DAYS + 1 + (ordinal - last - 1) % CYCLE_DAYS
    at = datetime.fromordinal(max(ordinal, 2)) + timedelta(seconds=seconds)
    offset = at.replace(tzinfo=zone).utcoffset()
    assert offset is not None
    return offset.days * DAY_S + offset.seconds


def _fitting(micros: int) -> int | None:
    return micros if -INT64_MAX - 1 <= micros <= INT64_MAX else None
