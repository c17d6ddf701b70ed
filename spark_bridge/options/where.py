"""What the option `where` admits, as JSON: values of topic, queue, tags and broker, ranges of offsets and times.

A plan leaves out what has none of them. It is an option, and not a filter that Spark pushes: Spark 4.2 and 4.3 keep
one plan for all scans of a loaded frame, so what one query pushed would be missing in the answer of another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from spark_bridge.options.ranges import RANGED, Limit, Range, Ranges, limits_as_json, parse_limits, ranges_of
from spark_bridge.options.values import InvalidOption, json_value, nearest

EXAMPLE = '{"topic":["orders"],"queueId":[0,1],"queueOffset":{">=":100,"<":200}}'
# Columns to fields and the type of their values; schema=kafka calls the queue's id `partition`.
COLUMNS: dict[str, tuple[str, type]] = {
    "topic": ("topics", str),
    "queueId": ("queue_ids", int),
    "partition": ("queue_ids", int),
    "tags": ("tags", str),
    "brokerName": ("brokers", str),
}


@dataclass(frozen=True)
class Where:
    """The values that are wanted, and the limits of ranges."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    brokers: frozenset[str] | None = None
    limits: tuple[Limit, ...] = ()

    def narrowed(self, column: str, values: Iterable[Any]) -> Where:
        """Return the part of this that has one of the values in the column."""
        name, _ = COLUMNS[column]
        known, wanted = getattr(self, name), frozenset(values)
        met: dict[str, Any] = {name: wanted if known is None else known & wanted}
        return replace(self, **met)

    def ranges_at(self, now_ms: int) -> Ranges:
        """The ranges of a read that is planned then."""
        return ranges_of(self.limits, now_ms)


ANYTHING = Where()


def parse_where(text: str | None) -> Where:
    """The option's value: an object of columns, each with a value, a list of them, or limits. Raises InvalidOption."""
    if text is None:
        return ANYTHING
    conditions = json_value("where", text, f"give JSON as {EXAMPLE}")
    if not isinstance(conditions, dict):
        raise InvalidOption(f"where={text!r}: give JSON as {EXAMPLE}")
    names = {name.lower(): name for name in (*COLUMNS, *RANGED)}
    where = ANYTHING
    for given, value in conditions.items():
        column = names.get(given.lower())
        if column is None:
            raise InvalidOption(f"where={text!r}: no column {given!r} that selects; {nearest(given, names.values())}")
        if column in RANGED:
            where = replace(where, limits=(*where.limits, *parse_limits(f"where={text!r}", column, value)))
            continue
        values, kind = value if isinstance(value, list) else [value], COLUMNS[column][1]
        if not all(type(item) is kind for item in values):
            wanted = "whole numbers" if kind is int else "texts"
            raise InvalidOption(f"where={text!r}: {column} takes {wanted}, as {EXAMPLE}")
        where = where.narrowed(column, values)
    return where


def where_text(admitted: Mapping[str, Iterable[Any]], ranges: Mapping[str, Range] | None = None) -> str:
    """The option's value that admits these values and ranges of these columns."""
    values = {column: sorted(of_column) for column, of_column in admitted.items()}
    return json.dumps({**values, **limits_as_json(ranges or {})})
