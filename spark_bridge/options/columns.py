"""The columns of a row, RocketMQ's and Kafka's, by name and type: what may be asked for, known without Arrow.

Types are written as in Spark's DDL. Spark asks for a schema in a process of its own, which does nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from spark_bridge.options.rows import DEFAULT_ROWS, ERROR_COLUMN, KAFKA, RowOptions
from spark_bridge.options.values import InvalidOption, nearest

ROCKETMQ_TYPES: Mapping[str, str] = MappingProxyType({
    "topic": "string", "queueId": "int", "queueOffset": "bigint", "physicalOffset": "bigint", "msgId": "string",
    "tags": "string", "keys": "string", "properties": "map<string,string>", "body": "binary", "flag": "int",
    "sysFlag": "int", "bornTimestamp": "timestamp", "bornHost": "string", "storeTimestamp": "timestamp",
    "storeHost": "string", "reconsumeTimes": "int", "bodyLength": "int", "brokerName": "string",
})  # fmt: skip
KAFKA_TYPES: Mapping[str, str] = MappingProxyType({
    "key": "binary", "value": "binary", "topic": "string", "partition": "int", "offset": "bigint",
    "timestamp": "timestamp", "timestampType": "int",
})  # fmt: skip
HEADERS = "headers"
READING_COLUMN = "_reading"  # what came from where, on one row of each split that was read to its end
REPLICA_COLUMN = "_replica"  # where the row is from
TYPES: Mapping[str, str] = MappingProxyType({
    **ROCKETMQ_TYPES, **KAFKA_TYPES, HEADERS: "array<struct<key:string,value:binary>>", ERROR_COLUMN: "string",
    REPLICA_COLUMN: "string", READING_COLUMN: "string",
})  # fmt: skip
BODY_COLUMNS = ("body", "value")
_BY_LOWER = {name.lower(): name for name in TYPES}


def canonical(names: Sequence[str]) -> list[str]:
    """The names as columns have them, in whatever case they are written; each once. Unknown ones stay as they are."""
    return list(dict.fromkeys(_BY_LOWER.get(name.lower(), name) for name in names))


def names_asked(names: Sequence[str] | None = None, rows: RowOptions = DEFAULT_ROWS) -> list[str]:
    """Return the names given, in their order; without any those of the schema asked for.

    Raises InvalidOption for an unknown one.
    """
    if names is None:
        return _default_names(rows)
    for name in names:
        if name not in TYPES:
            raise InvalidOption(f"no column {name!r}; {nearest(name, TYPES)}")
    return list(names)


def _default_names(rows: RowOptions) -> list[str]:
    names = list(KAFKA_TYPES if rows.schema == KAFKA else ROCKETMQ_TYPES)
    if rows.include_headers:
        names.append(HEADERS)
    if not rows.include_properties:
        names.remove("properties")
    return [*names, ERROR_COLUMN] if rows.permissive else names
