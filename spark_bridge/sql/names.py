"""What a topic's table is called: Spark's catalogue takes letters, digits and underscores, topics have more.

`%RETRY%group` is `RETRY_group`, `my-topic` is `my_topic`. Topics that fall to one name have no table, none of them:
which of them a query means must not depend on which was there first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from spark_bridge.options.read import TABLE_NAMES
from spark_bridge.options.values import InvalidOption

MESSAGES, HEADS = "messages", "heads"
RESERVED = frozenset({MESSAGES, HEADS, *TABLE_NAMES})
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]+")
NAME = re.compile(r"[A-Za-z0-9_]{1,128}")
IN_OPTIONS = re.compile(r"[^,\s]+")  # what the option `topic` takes as one name
RENAME = "give it another with names={%r: ...}"


class TableNames(NamedTuple):
    """Topics to their tables' names, and those that have none to the reason why."""

    tables: dict[str, str]
    left_out: dict[str, str]


def quoted(*names: str) -> str:
    """A name for SQL, of one part or several."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def checked_name(what: str, name: str) -> str:
    """The name, if Spark's catalogue takes it. Raises InvalidOption."""
    if not NAME.fullmatch(name):
        raise InvalidOption(f"{what}={name!r}: a name of letters, digits and underscores, 128 at most")
    return name


def table_name(topic: str) -> str:
    """A name that Spark's catalogue takes, like the topic's."""
    return NOT_IN_NAMES.sub("_", topic).strip("_") or NOT_IN_NAMES.sub("_", topic)


def table_names(topics: Iterable[str], names: Mapping[str, str]) -> TableNames:
    """Return each topic's table, by `names` where that has one. Raises InvalidOption for what `names` cannot be."""
    _check_given(names)
    tables, left_out = {}, {}
    by_table: dict[str, list[str]] = {}
    for topic in sorted(set(topics)):
        name = names.get(topic, table_name(topic))
        if not (NAME.fullmatch(name) and IN_OPTIONS.fullmatch(topic)):
            left_out[topic] = f"{topic!r} is not a name of a topic that options can name"
            continue
        tables[topic] = name
        by_table.setdefault(name.lower(), []).append(topic)
    given = {name.lower() for name in names.values()}
    for name, alike in by_table.items():
        meant = [topic for topic in alike if topic in names]
        if len(alike) == 1 and (name not in RESERVED or meant):
            continue
        for topic in alike:
            if topic in meant and name in given:
                continue
            others = ", ".join(repr(other) for other in alike if other != topic) or "the table of that name"
            left_out[topic] = f"{topic!r} would be {tables.pop(topic)!r}, as {others}: {RENAME % topic}"
    return TableNames(tables, left_out)


def _check_given(names: Mapping[str, str]) -> None:
    seen: dict[str, str] = {}
    for topic, name in names.items():
        checked_name(f"names[{topic!r}]", name)
        if name.lower() in RESERVED:
            raise InvalidOption(f"names[{topic!r}]={name!r}: the database has a table of that name; give another")
        if name.lower() in seen:
            raise InvalidOption(f"names[{topic!r}]={name!r}: {seen[name.lower()]!r} has that name; give another")
        seen[name.lower()] = topic
