"""Options and columns of a write, checked: what the user gave to values, or an error that helps.

Columns go by RocketMQ's names or by those of Spark's Kafka sink; Spark ignores the case of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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

from spark_bridge.options.read import CLIENT_OPTION_NAMES, KAFKA_PREFIX
from spark_bridge.options.values import InvalidOption, choice, flag, local_path, nearest

HEADERS = "headers"
INCLUDE_HEADERS = "includeHeaders"  # of Kafka's users: the column is written where there is one
OPTION_NAMES = (
    "path", "topic", "acks", "idempotent", "writeId", "timeout", "systemProperties", "checkpointLocation",
    INCLUDE_HEADERS,
)  # fmt: skip
NOTHING, APPENDED, BROKER = "none", "appended", "broker"
ACKS = {
    "0": NOTHING, "1": APPENDED, "all": BROKER, "-1": BROKER, NOTHING: NOTHING, APPENDED: APPENDED, BROKER: BROKER,
}  # fmt: skip
TIMEOUT_SECONDS, TIMEOUT_SECONDS_MAX = 60.0, 24 * 3600.0
PATH_MISSING = (
    "option path is missing: the root directory of a broker's store; INSERT INTO and CREATE TABLE ... AS SELECT do not"
    ' tell a source the options of a table: write df.write.format("rocketmq").option("path", STORE).mode("append")'
    ".save()"
)
REFUSE, DROP = "refuse", "drop"

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


@dataclass(frozen=True)
class WriteOptions:
    """What one write asked for. `topic` None: each row says it; `write_id` None: this write will not be repeated.

    `drops_system_properties` None: those among headers only.
    """

    path: str
    topic: str | None = None
    acks: str = BROKER
    idempotent: bool = True
    write_id: str | None = None
    timeout_s: float = TIMEOUT_SECONDS
    drops_system_properties: bool | None = None


@dataclass(frozen=True)
class SinkColumns:
    """Which column, by its place, is which part of a message; `is_keyed`: equal keys go to one queue, as Kafka's.

    `has_headers`: properties are Kafka's headers.
    """

    places: Mapping[str, int]
    is_keyed: bool
    has_headers: bool = False


def parse_write_options(options: Mapping[str, str], *, overwrite: bool) -> WriteOptions:
    """Checked options. Raises InvalidOption naming the option, its value and what would do."""
    if overwrite:
        raise InvalidOption('a log cannot be overwritten: write with .mode("append"), or outputMode "append"')
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower() for name in (*OPTION_NAMES, *CLIENT_OPTION_NAMES)}
    for name in given:
        if name not in known and not name.startswith(KAFKA_PREFIX):
            raise InvalidOption(f"unknown option {name!r} of a write to rocketmq; {nearest(name, OPTION_NAMES)}")
    if not given.get("path"):
        raise InvalidOption(PATH_MISSING)
    acks = given.get("acks", BROKER).lower()
    if acks not in ACKS:
        raise InvalidOption(f"acks={given['acks']!r}: one of {', '.join(ACKS)}")
    flag(INCLUDE_HEADERS, given.get(INCLUDE_HEADERS.lower(), "true"))
    system = given.get("systemproperties")
    return WriteOptions(
        path=local_path("path", given["path"]),
        topic=_text("topic", given.get("topic")),
        acks=ACKS[acks],
        idempotent=flag("idempotent", given.get("idempotent", "true")),
        write_id=_text("writeId", given.get("writeid")),
        timeout_s=_seconds(given.get("timeout")),
        drops_system_properties=None if system is None else choice("systemProperties", system, (REFUSE, DROP)) == DROP,
    )


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


def _text(option: str, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise InvalidOption(f"{option} is empty")
    return value


def _seconds(text: str | None) -> float:
    if text is None:
        return TIMEOUT_SECONDS
    try:
        value = float(text)
    except ValueError as error:
        raise InvalidOption(f"timeout={text!r}: seconds, as a number") from error
    if not 0 < value <= TIMEOUT_SECONDS_MAX:
        raise InvalidOption(f"timeout={text}: above 0, at most {TIMEOUT_SECONDS_MAX:.0f} seconds")
    return value
