"""`option("table", ...)`: queues, topics, segments, replicas and consumer groups of stores as small tables.

Counts by topic and queue, first and last offsets and times come from the queues alone. The rows are made where Spark
plans the read, because cursors and recovery are the driver's part; there is one partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_bridge.options.read import ReadOptions
from spark_bridge.options.values import InvalidOption, nearest
from spark_bridge.user_errors import in_one_line

INT, BIGINT, STRING, TIMESTAMP, BOOLEAN = IntegerType(), LongType(), StringType(), TimestampType(), BooleanType()
TIMES = (("minTimestamp", TIMESTAMP), ("maxTimestamp", TIMESTAMP))
Columns = tuple[tuple[str, DataType], ...]

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


def table_schema(table: str, names: Sequence[str] | None = None) -> StructType:
    """Spark's schema of a metadata table, or of its columns that are named, in any case. Raises InvalidOption."""
    fields = {name.lower(): StructField(name, kind) for name, kind in TABLES[table]}
    asked = dict.fromkeys(fields if names is None else (name.lower() for name in names))
    for name in asked:
        if name not in fields:
            known = [field.name for field in fields.values()]
            raise InvalidOption(f"no column {name!r} in table {table}; {nearest(name, known)}")
    return StructType([fields[name] for name in asked])


class TableReader(DataSourceReader):
    """A read of one metadata table, of all its columns or of those that a schema names."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        assert options.table is not None
        self.options, self.table = options, options.table
        self.arrow_schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self.places = _places(self.table, schema)

    @in_one_line
    def partitions(self) -> list[InputPartition]:
        """All rows, in one partition."""
        from spark_bridge.plan.names import refuse_missing  # the driver's part only: executors need no cursors
        from spark_bridge.plan.stores import resolve_stores
        from spark_bridge.tables.rows import rows_of

        stores = resolve_stores(self.options)
        refuse_missing(self.options, stores)
        rows = rows_of(self.table, stores, self.options)
        return [InputPartition([[row[place] for row in rows] for place in self.places])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows, as they were when the read was planned."""
        columns = [
            _column(values, field.type) for values, field in zip(partition.value, self.arrow_schema, strict=True)
        ]  # fmt: skip
        yield pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Times are milliseconds."""
    if not pa.types.is_timestamp(kind):
        return pa.array(values, kind)
    return pa.array([None if value is None else value * 1000 for value in values], pa.int64()).cast(kind)


def _places(table: str, schema: StructType) -> list[int]:
    """Where the schema's columns are in the table. Raises InvalidOption."""
    names = [name for name, _ in TABLES[table]]
    for field in schema.fields:
        if field.name not in names:
            raise InvalidOption(f"no column {field.name!r} in table {table}; {nearest(field.name, names)}")
        kind = TABLES[table][names.index(field.name)][1]
        if field.dataType != kind:
            wanted, given_type = kind.simpleString(), field.dataType.simpleString()
            raise InvalidOption(f"column {field.name} of table {table} is {wanted}, the schema says {given_type}")
    return [names.index(field.name) for field in schema.fields]
