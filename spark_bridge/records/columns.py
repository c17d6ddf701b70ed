"""The columns of a row, RocketMQ's and Kafka's: their Arrow types, and how records become arrays of them.

One array operation per field, no Python per record. Kafka's columns are those of Spark's own Kafka source, types and
all: the key is RocketMQ's KEYS, headers are the properties, the timestamp is the producer's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_bridge.options.columns import BODY_COLUMNS, READING_COLUMN, REPLICA_COLUMN, names_asked
from spark_bridge.options.rows import DEFAULT_ROWS, ERROR_COLUMN, RAW, RowOptions
from spark_bridge.options.value_types import TIMESTAMP, array_of, map_of
from spark_bridge.records import hosts
from spark_bridge.records.damage import Damage
from spark_bridge.records.records import Records
from spark_bridge.records.spans import BIGINT, INT, STRING, numbers, repeated, spelled_out
from store.message.properties import KEYS, TAGS
from store.message.record import (
    BORN_HOST_AT,
    BORN_TIMESTAMP_AT,
    BORN_V6,
    FLAG_AT,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_V6,
    fixed_dtype,
)

if TYPE_CHECKING:  # it stands on pyarrow.compute, which is slow to load
    from spark_bridge.records.row_filter import RowFilter

FIXED_OFFSETS = {name: int(place[1]) for name, place in (fixed_dtype(0).fields or {}).items()}
RECONSUME_TIMES_AT = FIXED_OFFSETS["reconsume_times"]
BINARY = pa.binary()
HEADERS = array_of(pa.struct([("key", STRING), ("value", BINARY)]))
IN_PLACE = "in place"  # or the server of another host that gave the row
CREATE_TIME = 0  # Kafka's timestampType of a time that the producer set


def _timestamps(milliseconds: npt.NDArray[np.int64]) -> pa.TimestampArray:
    return numbers(milliseconds * 1000, TIMESTAMP)


def _born_host(records: Records) -> pa.DictionaryArray:
    return _host(records, records.starts + BORN_HOST_AT, BORN_V6)


def _store_host(records: Records) -> pa.DictionaryArray:
    return _host(records, records.store_host_at, STORE_V6)


def _host(records: Records, at: npt.NDArray[np.int64], bit: int) -> pa.DictionaryArray:
    return hosts.host_texts(records.window, at, (records.sys_flag & bit) != 0)


def _message_id(records: Records) -> pa.StringArray:
    v6 = (records.sys_flag & STORE_V6) != 0
    return hosts.message_ids(records.window, records.store_host_at, records.starts + PHYSICAL_OFFSET_AT, v6)


def _headers(records: Records) -> pa.ListArray:
    """The properties as Kafka's headers: null without any."""
    pairs = records.properties
    items = pa.StructArray.from_arrays([pairs.keys, pairs.items.cast(pa.binary())], ["key", "value"])
    ends = pairs.offsets.to_numpy()
    empty = np.append(ends[1:] == ends[:-1], False)
    return pa.ListArray.from_arrays(pa.array(ends, mask=empty), items)


def _broker_name(records: Records) -> pa.StringArray:
    return repeated(records.window.broker_name or None, len(records))


def _errors(records: Records) -> pa.StringArray:
    if not records.errors:
        return pa.nulls(len(records), pa.string())
    return pa.array([records.errors.get(row) for row in range(len(records))], pa.string())


class Column(NamedTuple):
    """One column: its name and type, how it is made, and whether its bytes weigh (a batch is cut by them).

    `encode` makes texts that repeat as a dictionary.
    """

    name: str
    kind: pa.DataType
    build: Callable[[Records], Any]
    heavy: bool = False
    encode: Callable[[Records], pa.DictionaryArray] | None = None

    @property
    def encoded(self) -> Column:
        """The column as dictionaries, one a batch, where its texts repeat; else as it is."""
        if self.encode is None:
            return self
        return self._replace(kind=pa.dictionary(pa.int32(), self.kind), build=self.encode)

    @property
    def reads_body(self) -> bool:
        """Whether compressed bodies have to be inflated for it."""
        return self.name in BODY_COLUMNS


def _int32_column(name: str, at: int) -> Column:
    return Column(name, INT, lambda records: numbers(records.int32_at(at), INT))


def _int64_column(name: str, at: int) -> Column:
    return Column(name, BIGINT, lambda records: numbers(records.int64_at(at), BIGINT))


TOPIC = Column("topic", STRING, lambda records: records.topic, encode=lambda records: records.topic_dictionary)
BORN = Column("bornTimestamp", TIMESTAMP, lambda r: _timestamps(r.int64_at(BORN_TIMESTAMP_AT)))
COLUMNS = (
    TOPIC,
    _int32_column("queueId", QUEUE_ID_AT),
    _int64_column("queueOffset", QUEUE_OFFSET_AT),
    Column("physicalOffset", BIGINT, lambda records: numbers(records.window.offsets(records.starts), BIGINT)),
    Column("msgId", STRING, _message_id),
    Column("tags", STRING, lambda r: r.property_value(TAGS), heavy=True, encode=lambda r: r.property_dictionary(TAGS)),
    Column("keys", STRING, lambda records: records.property_value(KEYS), heavy=True),
    Column("properties", map_of(STRING), lambda records: records.properties, heavy=True),
    Column("body", BINARY, lambda records: records.body, heavy=True),
    _int32_column("flag", FLAG_AT),
    Column("sysFlag", INT, lambda records: numbers(records.sys_flag, INT)),
    BORN,
    Column("bornHost", STRING, lambda records: spelled_out(_born_host(records)), encode=_born_host),
    Column("storeTimestamp", TIMESTAMP, lambda records: _timestamps(records.stored_ms)),
    Column("storeHost", STRING, lambda records: spelled_out(_store_host(records)), encode=_store_host),
    Column("reconsumeTimes", INT, lambda r: numbers(r.int32_at(RECONSUME_TIMES_AT, r.hosts_shift), INT)),
    Column("bodyLength", INT, lambda records: numbers(records.body_length, INT)),
    Column("brokerName", STRING, _broker_name, encode=lambda records: _broker_name(records).dictionary_encode()),
)
KAFKA_COLUMNS = (
    Column("key", BINARY, lambda records: records.property_value(KEYS).cast(pa.binary())),
    Column("value", BINARY, lambda records: records.body, heavy=True),
    TOPIC,
    _int32_column("partition", QUEUE_ID_AT),
    _int64_column("offset", QUEUE_OFFSET_AT),
    BORN._replace(name="timestamp"),
    Column("timestampType", INT, lambda records: numbers(np.full(len(records), CREATE_TIME), INT)),
)
HEADERS_COLUMN = Column("headers", HEADERS, _headers, heavy=True)
ERRORS = Column(ERROR_COLUMN, STRING, _errors)
REPLICA = Column(REPLICA_COLUMN, STRING, lambda records: repeated(IN_PLACE, len(records)))
READING = Column(READING_COLUMN, STRING, lambda records: pa.nulls(len(records), STRING))
OF_THE_READ = (ERRORS, REPLICA, READING)
BY_NAME = {column.name: column for column in (*COLUMNS, *KAFKA_COLUMNS, HEADERS_COLUMN, *OF_THE_READ)}


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow schema of these columns."""
    return pa.schema([(column.name, column.kind) for column in columns])


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
        column._replace(kind=value_type, build=lambda records: decoded(records, rows)) if column.reads_body else column
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
        return any(column.reads_body for column in self.columns)

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
