"""`write.format("rocketmq")` and `writeStream`: Spark's side of a write.

Spark may run a task again: after a failure, after a lost executor, and a stream's last epoch after a restart. What
stays the same then (query, epoch, partition) goes with the rows, to the engine on the executor's own host, or through
Flight to the host of a master.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
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
from spark_bridge.sink.append import Appended, append
from spark_bridge.sink.options import SinkColumns, WriteOptions, parse_write_options
from spark_bridge.sink.task import TaskId
from spark_bridge.user_errors import in_one_line

# Columns of a write, checked: which one is which part of a message, or an error that helps.
#
# Columns go by RocketMQ's names or by those of Spark's Kafka sink; Spark ignores the case of both.
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


QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"  # what Spark tells the tasks of a stream
CLOCKS_APART_MS = 3_600_000
Append = Callable[[Iterator[pa.RecordBatch], TaskId, WriteOptions, SinkColumns, int], Appended]


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The result of one task: rows appended, and rows that an earlier attempt had appended."""

    appended: int
    in_log: int


class RocketMQWriter(DataSourceArrowWriter):
    """One batch write; made once on the driver, so all attempts of its tasks share its id."""

    def __init__(self, schema: StructType, options: Mapping[str, str], *, overwrite: bool, to: Append = append) -> None:
        self.options, self._append = parse_write_options(options, overwrite=overwrite), to
        self.columns = sink_columns(schema, self.options.topic)
        self.query = self.options.write_id or str(uuid.uuid4())
        # A write that nobody can repeat later has nothing in the older index files.
        self.since_ms = 0 if self.options.write_id else time.time_ns() // 1_000_000 - CLOCKS_APART_MS

    @in_one_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write all rows of one partition, by the executor. Raises NoEngine before the first row."""
        context = TaskContext.get()
        task = TaskId(self.query, 0, context.partitionId() if context is not None else 0)
        return Written(*self._append(iterator, task, self.options, self.columns, self.since_ms))


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """The sink of a streaming query; Spark tells each task its query and its epoch."""

    def __init__(self, schema: StructType, options: Mapping[str, str], *, overwrite: bool, to: Append = append) -> None:
        self.options, self._append = parse_write_options(options, overwrite=overwrite), to
        self.columns = sink_columns(schema, self.options.topic)

    @in_one_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write all rows of one partition of an epoch, by the executor. Raises NoEngine before the first row."""
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_ID) if context is not None else None
        epoch = context.getLocalProperty(BATCH_ID) if context is not None else None
        if context is None or query is None or epoch is None:
            raise RuntimeError(f"this task has no {QUERY_ID} or no {BATCH_ID}: it does not belong to a micro-batch")
        task = TaskId(self.options.write_id or query, int(epoch), context.partitionId())
        return Written(*self._append(iterator, task, self.options, self.columns, 0))
