"""Generated conditions of a scan's `where`, over generated stores, with a filter in plain Python over decoded rows."""

from __future__ import annotations

import datetime as dt
import operator
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spark_bridge.options.value_types import TIMESTAMP
from spark_bridge.records.columns import BY_NAME
from spark_bridge.scanning import scan
from store.message.record import SysFlag
from tests.reads.added import Added
from tests.reads.made_stores import TOPICS, Made
from tests.spark_bridge.stores import Row

HOLDS = {
    "==": operator.eq, "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
ASKED = tuple(
    name for name in BY_NAME if name not in ("body", "value", "properties", "headers", "_error")
)  # of these a condition may be
OFTEN = ("topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "bornTimestamp", "tags", "keys",
         "bodyLength", "flag")  # fmt: skip
LARGEST = {"int32": 2**31 - 1, "int64": 2**63 - 1}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SHOWN = ("physicalOffset", "body", "tags", "storeTimestamp", "bodyLength")
SEVERAL_EVERY = 7  # one scan of each such number gives several columns, too


@dataclass
class Tally(Added):
    """What some conditions came to: `part` kept some rows of a store, not all."""

    conditions: int = 0
    kept: int = 0
    part: int = 0
    read: int = 0
    visible: int = 0
    differences: list[str] = field(default_factory=list)


class Asked(NamedTuple):
    """One scan: its conditions, and options that select."""

    where: list[tuple[str, str, Any]]
    options: dict[str, Any]


def generated(chance: random.Random, made: Made) -> Asked:
    """Conditions on values that the store has, that lie beside them, or that no row can have."""
    where = [_condition(chance, made) for _ in range(chance.choice((1, 1, 2, 3)))]
    options: dict[str, Any] = {"includeSystemTopics": chance.choice(("true", "false"))}
    kind = chance.randrange(10)
    if kind == 0:
        options["topics"] = sorted(set(chance.sample(TOPICS, 3)))
    elif kind == 1:
        options["keys"] = ",".join(chance.sample(("k1", "k2", "U3", "k10", "none"), 2))
    elif kind == 2:
        options["subExpression"] = " || ".join(chance.sample(("a", "b", "ab", "none"), 2))
    if kind < 3:
        options["allowMissingTopics"] = "true"
    if chance.randrange(4) == 0:
        options["minPartitions"] = str(chance.randrange(1, 9))
    return Asked(where, options)


def _condition(chance: random.Random, made: Made) -> tuple[str, str, Any]:
    name = chance.choice(OFTEN if chance.randrange(4) else ASKED)
    present = [row[name] for row in chance.sample(list(made.rows.values()), 3) if row[name] is not None]
    sign = chance.choice((*HOLDS, "in", "not in"))
    if sign in HOLDS:
        return _in_any_case(chance, name), sign, _value(chance, name, present)
    return name, sign, [_value(chance, name, present) for _ in range(chance.randrange(1, 4))]


def _in_any_case(chance: random.Random, name: str) -> str:
    return name.upper() if chance.randrange(8) == 0 and name.upper().lower() == name.lower() else name


def _value(chance: random.Random, name: str, present: Sequence[Any]) -> Any:
    kind = BY_NAME[name].kind
    known = chance.choice(present) if present else None
    if kind == TIMESTAMP:
        return _moment(chance, (0 if known is None else known) + chance.choice((0, 0, 1, -1, 1000, -1000)))
    if str(kind) in LARGEST:
        most = LARGEST[str(kind)]
        value = (0 if known is None else known) + chance.choice((0, 0, 1, -1))
        return max(-most - 1, min(chance.choice((value, value, value, 0, most, -most - 1)), most))
    text = chance.choice((known, known, "", "a", "zz", "grün", "ord")) or "a"
    return text.encode() if str(kind) == "binary" and isinstance(text, str) else text


def _moment(chance: random.Random, microseconds: int) -> Any:
    """A time as users give one: with a zone, as text, without a zone."""
    moment = EPOCH + dt.timedelta(microseconds=microseconds)
    kind = chance.randrange(4)
    if kind == 0:
        return moment.isoformat()
    if kind == 1:
        return moment.replace(tzinfo=None)
    return moment.astimezone(dt.timezone(dt.timedelta(hours=-7, minutes=-30))) if kind == 2 else moment


def meeting(rows: list[Row], condition: tuple[str, str, Any]) -> list[Row]:
    """The plain rows that meet it; a null meets none."""
    name, sign, value = condition
    column = next(one for one in ASKED if one.lower() == name.lower())
    is_time = BY_NAME[column].kind == TIMESTAMP
    values = [_microseconds(one) if is_time else one for one in (value if isinstance(value, list) else [value])]
    rows = [row for row in rows if row[column] is not None]
    if sign in HOLDS:
        return [row for row in rows if HOLDS[sign](row[column], values[0])]
    return [row for row in rows if (row[column] in values) == (sign == "in")]


def _microseconds(given: Any) -> int:
    moment = dt.datetime.fromisoformat(given) if isinstance(given, str) else given
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return (moment - EPOCH) // dt.timedelta(microseconds=1)


def expected(made: Made, asked: Asked) -> list[Row]:
    """The rows that a plain filter keeps, in the log's order."""
    options = asked.options
    rows = made.visible(options["includeSystemTopics"] == "true" or "topics" in options)
    if "topics" in options:
        rows = [row for row in rows if row["topic"] in options["topics"]]
    if "keys" in options:
        keys = set(options["keys"].split(","))
        rows = [row for row in rows if keys & {*(row["keys"] or "").split(" "), row["properties"].get("UNIQ_KEY")}]
    if "subExpression" in options:
        rows = [row for row in rows if row["tags"] in options["subExpression"].split(" || ")]
    for condition in asked.where:
        rows = meeting(rows, condition)
    return rows


def check(made: Made, number: int) -> Tally:
    """Scan the store by the condition with that number."""
    chance = random.Random(number)
    asked = generated(chance, made)
    rows, several = expected(made, asked), number % SEVERAL_EVERY == 0
    names = SHOWN if several else SHOWN[:1]
    tally = Tally(1, len(rows), 0 < len(rows) < len(made.rows), visible=len(made.rows))
    try:
        threads = 2 if several else 1
        table = scan(made.root, where=asked.where, columns=names, threads=threads, **asked.options).read_all()
    except Exception as error:
        tally.differences.append(f"condition {number} of a store {made.kind}, {asked}: {type(error).__name__}: {error}")
        return tally
    at = table.schema.names.index("storeTimestamp") if several else -1
    columns = [column.cast("int64") if place == at else column for place, column in enumerate(table.columns)]
    found = sorted(zip(*(column.to_pylist() for column in columns), strict=True))
    wanted = [tuple(_shown(row, name) for name in names) for row in rows]
    if found != wanted:
        wrong = sorted({row[0] for row in set(found) ^ set(wanted)}) or "other columns, or rows twice"
        tally.differences.append(f"condition {number} of a store {made.kind}, {asked}: offsets {wrong}")
    return tally


def _shown(row: Row, name: str) -> Any:
    """As the scan gives it: a compressed body inflated."""
    return zlib.decompress(row[name]) if name == "body" and row["sysFlag"] & SysFlag.COMPRESSED else row[name]
