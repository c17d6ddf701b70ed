"""What the option `where` admits, as JSON: values of topic, queue, tags and broker, None is any.

A plan leaves out what has none of them. It is an option, and not a filter that Spark pushes: Spark 4.2 and 4.3 keep
one plan for all scans of a loaded frame, so what one query pushed would be missing in the answer of another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from spark_bridge.options.values import InvalidOption, json_value, nearest

EXAMPLE = '{"topic":["orders"],"queueId":[0,1]}'
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
    """The values that are wanted."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    brokers: frozenset[str] | None = None

    def narrowed(self, column: str, values: Iterable[Any]) -> Where:
        """Of this, what has one of the values in the column."""
        name, _ = COLUMNS[column]
        known, wanted = getattr(self, name), frozenset(values)
        return replace(self, **{name: wanted if known is None else known & wanted})


ANYTHING = Where()


def parse_where(text: str | None) -> Where:
    """The option's value: an object of columns, each with a value or a list of them. Raises InvalidOption."""
    if text is None:
        return ANYTHING
    conditions = json_value("where", text, f"give JSON as {EXAMPLE}")
    if not isinstance(conditions, dict):
        raise InvalidOption(f"where={text!r}: give JSON as {EXAMPLE}")
    names = {name.lower(): name for name in COLUMNS}
    where = ANYTHING
    for given, value in conditions.items():
        column = names.get(given.lower())
        if column is None:
            raise InvalidOption(f"where={text!r}: no column {given!r} that selects; {nearest(given, COLUMNS)}")
        values, kind = value if isinstance(value, list) else [value], COLUMNS[column][1]
        if not all(type(item) is kind for item in values):
            wanted = "whole numbers" if kind is int else "texts"
            raise InvalidOption(f"where={text!r}: {column} takes {wanted}, as {EXAMPLE}")
        where = where.narrowed(column, values)
    return where


def where_text(admitted: Mapping[str, Iterable[Any]]) -> str:
    """The option's value that admits these values of these columns."""
    return json.dumps({column: sorted(values) for column, values in admitted.items()})
