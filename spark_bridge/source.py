"""Spark's entry: a store as a table, planned once on the driver and read in place by the executors.

The plan is made where Spark asks for partitions; executors are told the log's end with their splits and never ask
again. They import this package and `store`, nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    EqualNullSafe,
    EqualTo,
    Filter,
    In,
    InputPartition,
    IsNotNull,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_bridge.columns import columns_of, schema_of, settled
from spark_bridge.options import ReadOptions, parse_options
from spark_bridge.pushed import Pushed
from spark_bridge.reading import read_split
from spark_bridge.stream_options import without_stream_only
from spark_bridge.tables import TableReader, table_schema

FORMAT = "rocketmq"
# Columns of which filters are taken into the plan; schema=kafka calls the queue's id `partition`.
TAKEN = {"topic": "topics", "queueId": "queue_ids", "partition": "queue_ids", "tags": "tags", "brokerName": "brokers"}
NEVER_NULL = ("topics", "queue_ids")


class RocketMQSource(DataSource):
    """`spark.read.format("rocketmq")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """All columns; a schema given by the user prunes them."""
        options = parse_options(without_stream_only(self.options))
        return schema_of(rows=options.rows) if options.table is None else table_schema(options.table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read of the columns in `schema`, of messages or of a metadata table."""
        options = parse_options(self.options)
        return RocketMQReader(schema, options) if options.table is None else TableReader(schema, options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write through the engine on the executors' hosts."""
        from spark_bridge.sink import RocketMQWriter  # readers do without it

        return RocketMQWriter(schema, self.options, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """A streaming query's sink."""
        from spark_bridge.sink import RocketMQStreamWriter

        return RocketMQStreamWriter(schema, self.options, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A stream of the columns in `schema`."""
        from spark_bridge.stream import RocketMQStreamReader  # batch reads need nothing of it

        return RocketMQStreamReader(schema, self.options)


class SoftPush:
    """A `pushFilters` that Spark calls when push-down is switched on, and does not refuse when it is off (the default).

    Spark refuses a reader whose pushFilters is overridden, unless the conf is on; it tells by `__func__`.
    """

    __func__: ClassVar[Any] = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, push: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._push = push

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes what it can; returns what Spark still has to check."""
        return self._push(filters)


class RocketMQReader(DataSourceReader):
    """One read: options and pushed filters to splits on the driver, splits to batches on the executors."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.options = options
        self.column_names = schema.fieldNames()
        self.rows = settled(schema, self.options.rows)
        self.arrow_schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self.pushed = Pushed()
        self.pushFilters = SoftPush(self.push)  # type: ignore[method-assign]

    def push(self, filters: list[Filter]) -> Iterator[Filter]:
        """Take the filters on topic and queue, use those on tags and broker; yields what Spark has to check."""
        for condition in filters:
            path, values = getattr(condition, "attribute", None), _values(condition)
            name = TAKEN.get(path[0]) if path is not None and len(path) == 1 else None
            if name is not None and values is not None:
                known = getattr(self.pushed, name)
                both = values if known is None else known & values
                self.pushed = replace(self.pushed, **{name: both})
            if name in NEVER_NULL and (values is not None or isinstance(condition, IsNotNull)):
                continue
            yield condition

    def partitions(self) -> list[InputPartition]:
        """The splits, planned against the log's end as it is now."""
        from spark_bridge.planning import plan_read  # the driver's part only: executors need no cursors

        return [InputPartition(split) for split in plan_read(self.options, self.pushed)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one split; Spark makes up a partition without a value when there is none."""
        if partition.value is not None:
            columns = columns_of(self.column_names, self.rows)
            yield from read_split(partition.value, columns, self.arrow_schema, self.rows)


def _values(condition: Filter) -> frozenset[Any] | None:
    """The values that an equality admits; None when the filter is of another kind. Nothing equals null."""
    if isinstance(condition, EqualNullSafe) and condition.value is None:
        return None
    if isinstance(condition, EqualTo | EqualNullSafe):
        return frozenset({condition.value} - {None})
    if isinstance(condition, In):
        return frozenset(set(condition.value) - {None})
    return None
