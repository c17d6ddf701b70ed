"""Ranges of offsets and times, the columns that have them, and their limits as JSON: `{">=": 100, "<": 200}`.

A plan reads no split that lies outside of them. Times are limited as moments are given (`options.queues`): a limit
relative to now is another one in each plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from spark_bridge.options.queues import Moment, parse_moment
from spark_bridge.options.values import InvalidOption

# Columns to the fields of `Ranges`; schema=kafka has other names for two of them.
RANGED = {
    "queueOffset": "queue_offsets",
    "offset": "queue_offsets",
    "physicalOffset": "physical_offsets",
    "storeTimestamp": "stored_ms",
    "bornTimestamp": "born_ms",
    "timestamp": "born_ms",
}
TIMES = frozenset({"stored_ms", "born_ms"})
COMPARED = ("=", "==", ">=", ">", "<", "<=")
MICROSECONDS = 1000  # in a millisecond: Spark and Arrow tell times in them, the log does not
NUMBER_MAX = 2**63 - 1
TIME_MAX_MS = 10**15 - 1  # the year 33658
EXAMPLE = '{"queueOffset":{">=":100,"<":200}}'
TIME_EXAMPLE = '{"storeTimestamp":{">=":"-2h"}}'


class Range(NamedTuple):
    """Whole numbers from `first` on, before `end`; None is no limit."""

    first: int | None = None
    end: int | None = None

    def met(self, other: Range) -> Range:
        """Return the intersection of both ranges."""
        firsts = [first for first in (self.first, other.first) if first is not None]
        ends = [end for end in (self.end, other.end) if end is not None]
        return Range(max(firsts, default=None), min(ends, default=None))

    def widened(self, by: int) -> Range:
        """Return the range, wider by `by` at each limit."""
        return Range(None if self.first is None else self.first - by, None if self.end is None else self.end + by)

    def within(self, start: int, end: int) -> tuple[int, int]:
        """Return what there is of it in [start, end): its start and end, equal where that is nothing."""
        first = start if self.first is None else max(start, self.first)
        return first, max(first, end if self.end is None else min(end, self.end))


class Ranges(NamedTuple):
    """The ranges in which records have to lie: offsets in their queue and in the log, and milliseconds since 1970."""

    queue_offsets: Range = Range()
    physical_offsets: Range = Range()
    stored_ms: Range = Range()
    born_ms: Range = Range()


UNLIMITED = Ranges()


class Limit(NamedTuple):
    """One end of a range: the first value wanted, or the first one that is not."""

    field: str
    is_end: bool
    moment: Moment  # of offsets: the number itself


def compared(sign: str, constant: int, unit: int = 1) -> Range:
    """Return what a comparison with a constant admits, of a column in units of so many of the constant's."""
    first, behind = -(-constant // unit), constant // unit + 1  # the first value at or above it, the first one above
    return {
        "=": Range(first, behind), "==": Range(first, behind), ">=": Range(first), ">": Range(behind),
        "<": Range(None, first), "<=": Range(None, behind),
    }[sign]  # fmt: skip


def ranges_of(limits: Iterable[Limit], now_ms: int) -> Ranges:
    """Return the ranges that meet all limits."""
    ranges = UNLIMITED
    for field, is_end, moment in limits:
        value = max(-NUMBER_MAX, min(moment.at(now_ms), NUMBER_MAX))
        known: Range = getattr(ranges, field)
        ranges = ranges._replace(**{field: known.met(Range(None, value) if is_end else Range(value))})
    return ranges


def parse_limits(option: str, column: str, value: object) -> Iterator[Limit]:
    """The limits of one column, named as in `RANGED`. Raises InvalidOption."""
    field = RANGED[column]
    example = TIME_EXAMPLE if field in TIMES else EXAMPLE
    if not isinstance(value, dict) or not value:
        raise InvalidOption(f"{option}: {column} is limited by >=, >, < and <=, as {example}")
    for sign, limit in value.items():
        if sign not in (">=", ">", "<", "<="):
            raise InvalidOption(f"{option}: {column} {sign!r}: one of >=, >, < and <=, as {example}")
        moment = _moment(option, column, limit)
        if sign in (">", "<="):  # so that `first` is in the range, `end` behind it
            moment = moment._replace(ms=moment.ms + (-1 if moment.is_relative else 1))
        yield Limit(field, sign in ("<", "<="), moment)


def _moment(option: str, column: str, limit: object) -> Moment:
    if RANGED[column] in TIMES:
        return parse_moment(f"{option}.{column}", limit)
    if type(limit) is not int or abs(limit) > NUMBER_MAX:
        raise InvalidOption(f"{option}: {column} takes whole numbers of 64 bits, not {limit!r}, as {EXAMPLE}")
    return Moment(limit)


def limits_as_json(ranges: Mapping[str, Range]) -> dict[str, Any]:
    """The ranges by column, as `parse_limits` reads them."""
    by_column: dict[str, Any] = {}
    for column, given in ranges.items():
        low, high = (0, TIME_MAX_MS) if RANGED[column] in TIMES else (-NUMBER_MAX, NUMBER_MAX)
        limits = {sign: limit for sign, limit in ((">=", given.first), ("<", given.end)) if limit is not None}
        if limits:
            by_column[column] = {sign: max(low, min(limit, high)) for sign, limit in limits.items()}
    return by_column
