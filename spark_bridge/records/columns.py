"""The columns of a row, RocketMQ's and Kafka's, and the question of a read.

Kafka's columns are those of Spark's own Kafka source, types and all: the key is RocketMQ's KEYS, headers are the
properties, the timestamp is the producer's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from spark_bridge.options.columns import BODY_COLUMNS, READING_COLUMN, REPLICA_COLUMN, names_asked
from spark_bridge.options.rows import DEFAULT_ROWS, ERROR_COLUMN, RAW, RowOptions
from spark_bridge.options.value_types import array_of
from spark_bridge.records.damage import Damage
from store.columns.columns import BORN, COLUMNS, TOPIC, Column, arrow_schema, int32_column, int64_column
from store.columns.records import Records
from store.columns.spans import BINARY, INT, STRING, numbers, repeated
from store.message.properties import KEYS
from store.message.record import QUEUE_ID_AT, QUEUE_OFFSET_AT

if TYPE_CHECKING:  # it stands on pyarrow.compute, which is slow to load
    from spark_bridge.records.row_filter import RowFilter

HEADERS = array_of(pa.struct([("key", STRING), ("value", BINARY)]))
IN_PLACE = "in place"  # or the server of another host that gave the row
CREATE_TIME = 0  # Kafka's timestampType of a time that the producer set


def _headers(records: Records) -> pa.ListArray:
    """The properties as Kafka's headers: null without any."""
    pairs = records.properties
    items = pa.StructArray.from_arrays([pairs.keys, pairs.items.cast(pa.binary())], ["key", "value"])
    ends = pairs.offsets.to_numpy()
    empty = np.append(ends[1:] == ends[:-1], False)
    return pa.ListArray.from_arrays(pa.array(ends, mask=empty), items)


def _errors(records: Records) -> pa.StringArray:
    if not records.errors:
        return pa.nulls(len(records), pa.string())
    return pa.array([records.errors.get(row) for row in range(len(records))], pa.string())


KAFKA_COLUMNS = (
    Column("key", BINARY, lambda records: records.property_value(KEYS).cast(pa.binary())),
    Column("value", BINARY, lambda records: records.body, heavy=True),
    TOPIC,
    int32_column("partition", QUEUE_ID_AT),
    int64_column("offset", QUEUE_OFFSET_AT),
    BORN._replace(name="timestamp"),
    Column("timestampType", INT, lambda records: numbers(np.full(len(records), CREATE_TIME), INT)),
)
HEADERS_COLUMN = Column("headers", HEADERS, _headers, heavy=True)
ERRORS = Column(ERROR_COLUMN, STRING, _errors)
REPLICA = Column(REPLICA_COLUMN, STRING, lambda records: repeated(IN_PLACE, len(records)))
READING = Column(READING_COLUMN, STRING, lambda records: pa.nulls(len(records), STRING))
OF_THE_READ = (ERRORS, REPLICA, READING)
BY_NAME = {column.name: column for column in (*COLUMNS, *KAFKA_COLUMNS, HEADERS_COLUMN, *OF_THE_READ)}


def columns_of(names: Sequence[str] | None = None, rows: RowOptions = DEFAULT_ROWS) -> list[Column]:
    """The columns named, in that order, of either schema; without names those of the schema asked for.

    Raises InvalidOption for an unknown one.
    """
    columns = [BY_NAME[name] for name in names_asked(names, rows)]
    if rows.decode == RAW or rows.value_type is None:
        return columns
    from spark_bridge.records.decoders import decoded  # parsers, and registries' clients: raw bodies need none

    value_type = rows.value_type
    return [
        column._replace(kind=value_type, build=lambda records: decoded(records, rows))
        if column.name in BODY_COLUMNS
        else column
        for column in columns
    ]


class Asked(NamedTuple):
    """The question of a read: its columns, the schema of its batches, how rows are made, and which are kept."""

    columns: Sequence[Column]
    schema: pa.Schema
    rows: RowOptions = DEFAULT_ROWS
    row_filter: RowFilter | None = None

    @classmethod
    def of(
        cls, names: Sequence[str] | None = None, rows: RowOptions = DEFAULT_ROWS, schema: pa.Schema | None = None
    ) -> Asked:
        """Ask for the columns named as `columns_of` does, in a schema if theirs is not wanted. Raises InvalidOption."""
        columns = columns_of(names, rows)
        return cls(columns, arrow_schema(columns) if schema is None else schema, rows)

    @property
    def reads_bodies(self) -> bool:
        """Whether compressed bodies have to be inflated."""
        return any(column.name in BODY_COLUMNS for column in self.columns)

    def batch(self, arrays: Iterable[pa.Array]) -> pa.RecordBatch:
        """The columns' arrays, exactly in the schema."""
        cast = [a if a.type == f.type else a.cast(f.type) for a, f in zip(arrays, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(cast, schema=self.schema)

    def batch_of(self, records: Records) -> pa.RecordBatch:
        """The columns of some records. What is wrong with a body is known at the end."""
        built = {column.name: column.build(records) for column in self.columns if column.name != ERROR_COLUMN}
        return self.batch(built[c.name] if c.name in built else c.build(records) for c in self.columns)


def damage_batch(damages: Sequence[Damage], schema: pa.Schema, broker_name: str) -> pa.RecordBatch:
    """A row for each: what is wrong, and of the other columns what is known of the place."""
    queue_ids, queue_offsets = [one.queue_id for one in damages], [one.queue_offset for one in damages]
    known = {
        ERROR_COLUMN: [one.text for one in damages], "brokerName": [broker_name or None] * len(damages),
        "physicalOffset": [one.offset for one in damages], "topic": [one.topic for one in damages],
        "queueId": queue_ids, "partition": queue_ids, "queueOffset": queue_offsets, "offset": queue_offsets,
    }  # fmt: skip
    nothing = [None] * len(damages)
    return pa.RecordBatch.from_arrays([pa.array(known.get(f.name, nothing), f.type) for f in schema], schema=schema)
