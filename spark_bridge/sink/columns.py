"""Columns of a write, checked: which one is which part of a message, or an error that helps.

Columns go by RocketMQ's names or by those of Spark's Kafka sink; Spark ignores the case of both.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from spark_bridge.options.values import InvalidOption, nearest
from spark_bridge.sink.options import SinkColumns

HEADERS = "headers"
STRING, BINARY = StringType(), BinaryType()
TEXTS = (STRING, BINARY)
INTEGERS = (IntegerType(), LongType(), ShortType())
# Each message's part: the columns that may hold it, and their types.
PARTS: Mapping[str, tuple[tuple[str, tuple[DataType, ...]], ...]] = {
    "topic": (("topic", (STRING,)),),
    "tags": (("tags", (STRING,)),),
    "keys": (("keys", (STRING, ArrayType(STRING))), ("key", TEXTS)),
    "properties": (
        ("properties", (MapType(STRING, STRING),)),
        (HEADERS, (ArrayType(StructType().add("key", STRING).add("value", BINARY)),)),
    ),
    "body": (("body", TEXTS), ("value", TEXTS)),
    "queue_id": (("queueId", INTEGERS), ("partition", INTEGERS)),
}
# Of Kafka's rows as they are read: its sink takes them, and does without.
KAFKA_READ_COLUMNS = frozenset({"offset", "timestamp", "timestamptype"})
COLUMN_NAMES = tuple(name for columns in PARTS.values() for name, _types in columns)


def sink_columns(schema: StructType, topic: str | None) -> SinkColumns:
    """The parts of a message by the places of their columns. Raises InvalidOption."""
    by_name = {name.lower(): (part, name, types) for part, columns in PARTS.items() for name, types in columns}
    places: dict[str, int] = {}
    names: dict[str, str] = {}
    for place, field in enumerate(schema.fields):
        if field.name.lower() in KAFKA_READ_COLUMNS:
            continue
        if field.name.lower() not in by_name:
            raise InvalidOption(f"a message has no column {field.name!r}; {nearest(field.name, COLUMN_NAMES)}")
        part, name, types = by_name[field.name.lower()]
        if part in names:
            raise InvalidOption(f"columns {names[part]} and {name} are two names of one thing: write one of them")
        if not any(_same(field.dataType, one) for one in types):
            wanted = " or ".join(one.simpleString() for one in types)
            raise InvalidOption(f"column {name} is {wanted}, the rows have {field.dataType.simpleString()}")
        places[part], names[part] = place, name
    if "body" not in places:
        raise InvalidOption("no column body (or value): what the messages say")
    if "topic" not in places and topic is None:
        raise InvalidOption('no topic: a column topic, or .option("topic", NAME) for all rows')
    return SinkColumns(places, names.get("keys") == "key", names.get("properties") == HEADERS)


def _same(kind: DataType, wanted: DataType) -> bool:
    """Equal but for whether parts may be null."""
    return kind.simpleString() == wanted.simpleString()
