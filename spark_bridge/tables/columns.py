"""The columns of metadata tables in Arrow's types, and rows made a batch of them; nothing of Spark is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from spark_bridge.options.value_types import TIMESTAMP
from spark_bridge.options.values import InvalidOption, nearest

INT, BIGINT, STRING, BOOLEAN = pa.int32(), pa.int64(), pa.string(), pa.bool_()
TIMES = (("minTimestamp", TIMESTAMP), ("maxTimestamp", TIMESTAMP))
Columns = tuple[tuple[str, pa.DataType], ...]
Row = tuple[Any, ...]

TABLES: dict[str, Columns] = {
    "queues": (
        ("brokerName", STRING), ("topic", STRING), ("queueId", INT), ("minOffset", BIGINT), ("maxOffset", BIGINT),
        ("count", BIGINT), *TIMES, ("minPhysicalOffset", BIGINT), ("maxPhysicalOffset", BIGINT),
    ),
    "topics": (
        ("brokerName", STRING), ("topic", STRING), ("queues", INT), ("count", BIGINT), *TIMES, ("perm", INT),
        ("readQueueNums", INT), ("writeQueueNums", INT), ("messageType", STRING), ("isSystem", BOOLEAN),
    ),
    "segments": (
        ("brokerName", STRING), ("path", STRING), ("baseOffset", BIGINT), ("endOffset", BIGINT),
        ("fileBytes", BIGINT), ("allocatedBytes", BIGINT), ("minTimestamp", TIMESTAMP), ("modified", TIMESTAMP),
    ),
    "replicas": (
        ("brokerName", STRING), ("path", STRING), ("cluster", STRING), ("brokerId", INT), ("role", STRING),
        ("storeHost", STRING), ("pid", INT), ("minPhysicalOffset", BIGINT), ("maxPhysicalOffset", BIGINT),
        ("reputFromOffset", BIGINT), ("flushedOffset", BIGINT), ("confirmOffset", BIGINT), ("inSyncSlaves", INT),
        ("minTimestamp", TIMESTAMP),
    ),
    "consumer_groups": (
        ("brokerName", STRING), ("group", STRING), ("topic", STRING), ("queueId", INT), ("consumerOffset", BIGINT),
        ("minOffset", BIGINT), ("maxOffset", BIGINT), ("lag", BIGINT),
    ),
}  # fmt: skip


def columns_of_table(table: str, names: Sequence[str] | None = None) -> Columns:
    """A metadata table's columns, or those that are named, in any case, each once. Raises InvalidOption."""
    known = {name.lower(): (name, kind) for name, kind in TABLES[table]}
    asked = dict.fromkeys(known if names is None else (name.lower() for name in names))
    for name in asked:
        if name not in known:
            there = [column for column, _kind in known.values()]
            raise InvalidOption(f"no column {name!r} in table {table}; {nearest(name, there)}")
    return tuple(known[name] for name in asked)


def batch_of(table: str, columns: Columns, rows: Sequence[Row]) -> pa.RecordBatch:
    """The chosen columns of rows that have all of a table's, in its order."""
    places = {name: place for place, (name, _kind) in enumerate(TABLES[table])}
    arrays = [_array([row[places[name]] for row in rows], kind) for name, kind in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(columns))


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return an Arrow array; times are given in milliseconds."""
    if not pa.types.is_timestamp(kind):
        return pa.array(values, kind)
    return pa.array([None if value is None else value * 1000 for value in values], pa.int64()).cast(kind)
