"""Spark's entry: a store as a table, planned once on the driver and read in place by the executors.

The plan is made where Spark asks for partitions; executors get the log's end with their splits and never ask
again. They import this package, `store` and how remoting is spoken, and nothing else of the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_bridge import worker_process
from spark_bridge.catalogue import keeping, kept_options, options_of_creation
from spark_bridge.columnar.reader import read_split
from spark_bridge.options.flights import is_flight
from spark_bridge.options.read import ReadOptions, parse_options
from spark_bridge.options.values import InvalidOption
from spark_bridge.records.columns import canonical, columns_of
from spark_bridge.records.reading import counted_in_place
from spark_bridge.records.spark_schema import json_schema, schema_of, settled
from spark_bridge.stream.options import without_stream_only
from spark_bridge.tables.reader import TableReader, table_schema
from spark_bridge.user_errors import RefusedStream, in_one_line, one_line
from store.errors import QueueEntriesRemoved, SegmentRemoved

FORMAT = "rocketmq"
LOAD_AGAIN = (
    "a DataFrame or view keeps the plan of its first use: load it again (spark.read...load(), slipstream.read(...),"
    " CREATE OR REPLACE TEMPORARY VIEW ...), or CREATE TABLE ... USING rocketmq, which each query plans again"
)


def _restored(place: str, options: dict[str, str]) -> DataSource:
    """The source where it is unpickled: a stream's process on the driver does not look into what --py-files sent."""
    import sys

    if place not in sys.path:
        sys.path.append(place)
    from spark_bridge.source import RocketMQSource

    return RocketMQSource(options)


def _importable_from() -> str:
    """Return what has to be on sys.path: as it was given, which may lie in an archive."""
    return str(Path(__file__).parents[__name__.count(".")])


_restored.__module__ = "__main__"  # so that the function itself is pickled, and not where to import it from


class RocketMQSource(DataSource):
    """The data source `spark.read.format("rocketmq")` and its stream."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (_importable_from(), self.options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    @in_one_line
    def schema(self) -> StructType:
        """Return all columns, or those of the option `columns`; a schema that the user gives prunes them, too."""
        creation = options_of_creation(self.options)
        given = self.options if creation is None else creation
        options = parse_options(without_stream_only(given))
        schema = _schema(options)
        return schema if creation is None else keeping(schema, given)

    @in_one_line
    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read of the columns in `schema`, of messages or of a metadata table."""
        options = parse_options(kept_options(schema, self.options))
        _refuse_two_lists(options, schema)
        return RocketMQReader(schema, options) if options.table is None else _table_reader(schema, options)

    @in_one_line
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write through the engine on the executors' hosts."""
        from spark_bridge.sink.writer import RocketMQWriter  # readers do without it

        return RocketMQWriter(schema, self.options, overwrite=overwrite, to=self._append())

    @in_one_line
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return a streaming query's sink."""
        from spark_bridge.sink.writer import RocketMQStreamWriter

        return RocketMQStreamWriter(schema, self.options, overwrite=overwrite, to=self._append())

    def _append(self) -> Any:
        """Return what brings a task's rows to a log: that of its own host, or one behind a Flight server."""
        if is_flight(self.options.get("path", "")):
            from spark_bridge.flight.remote.put_client import append
        else:
            from spark_bridge.sink.append import append
        return append

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A stream of the columns in `schema`."""
        from spark_bridge.stream.reader import RocketMQStreamReader  # batch reads need nothing of it

        try:
            with one_line():
                options = kept_options(schema, self.options)
                read = parse_options(without_stream_only(options))
                _refuse_two_lists(read, schema)
                if read.flights is None:
                    return RocketMQStreamReader(schema, options)
                from spark_bridge.flight.remote.stream_reader import RemoteStreamReader

                return RemoteStreamReader(schema, options)
        except Exception as error:
            return RefusedStream(error)


class RocketMQReader(DataSourceReader):
    """One read: options to splits on the driver, splits to batches on the executors.

    It takes no filters: a frame's scans share one plan, so what one of them left out would be missing in all answers.
    """

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.options = options
        self.column_names = schema.fieldNames()
        self.rows = settled(schema, self.options.rows)
        self.value_schema = json_schema(schema, self.options.rows)
        self.arrow_schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    @in_one_line
    def partitions(self) -> list[InputPartition]:
        """The splits, planned against the log's end as it is now."""
        from spark_bridge.plan.planner import plan_read  # the driver's part only: executors need no cursors

        if self.options.flights is None:
            return [InputPartition(split) for split in plan_read(self.options)]
        from spark_bridge.flight.remote.anywhere import plan_anywhere

        planned = plan_anywhere(self.options.flights, self.column_names, self.rows, self.value_schema)
        return [InputPartition(split) for split in planned]

    @in_one_line
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one split's batches; a partition without a value, which Spark makes up, has none."""
        if partition.value is None:
            return
        if self.options.flights is not None:
            from spark_bridge.flight.remote.anywhere import read_anywhere

            yield from read_anywhere(partition.value, self.arrow_schema)
        else:
            columns = columns_of(self.column_names, self.rows)
            with first_plan_kept():
                batches = read_split(partition.value, columns, self.arrow_schema, self.rows)
                yield from counted_in_place(batches, self.arrow_schema)
        worker_process.keep_what_reading_loaded()


@contextmanager
def first_plan_kept() -> Iterator[None]:
    """Add to a 'removed' error the hint to load the frame again."""
    try:
        yield
    except (SegmentRemoved, QueueEntriesRemoved) as error:
        error.args = (f"{error}; {LOAD_AGAIN}",)
        raise


def _schema(options: ReadOptions) -> StructType:
    """The columns of messages or of a table, those asked for."""
    if options.table is None:
        return schema_of(None if options.columns is None else canonical(options.columns), options.rows)
    return table_schema(options.table, options.columns)


def _table_reader(schema: StructType, options: ReadOptions) -> TableReader:
    if options.flights is None:
        return TableReader(schema, options)
    from spark_bridge.flight.remote.table_reader import RemoteTableReader  # gRPC is for those who need it

    return RemoteTableReader(schema, options)


def _refuse_two_lists(options: ReadOptions, schema: StructType) -> None:
    """Columns are named by the option or by a schema."""
    if options.columns is not None and _schema(options).fieldNames() != schema.fieldNames():
        what = f"columns={','.join(options.columns)!r}, and a schema of {', '.join(schema.fieldNames())}"
        raise InvalidOption(f"{what}: name the columns once, by the option or by the schema")


worker_process.keep_modules()
worker_process.keep_buffers()
