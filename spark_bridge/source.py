"""Spark's entry: a store as a table. What each of Spark's processes needs of it is imported when it is asked for.

Spark makes a process to find the format, one to make a source, one to plan it, and workers to read. The first two
answer names and types of columns, so Arrow, numpy and compiled code are left to the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_bridge.catalogue import keeping, kept_options, options_of_creation
from spark_bridge.options.columns import canonical
from spark_bridge.options.flights import is_flight
from spark_bridge.options.read import ReadOptions, parse_options
from spark_bridge.options.values import InvalidOption
from spark_bridge.records.spark_schema import schema_of
from spark_bridge.stream.options import without_stream_only
from spark_bridge.user_errors import RefusedStream, in_one_line, one_line

FORMAT = "rocketmq"


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
        if options.table is not None:
            return _table_reader(schema, options)
        from spark_bridge.batch import RocketMQReader

        return RocketMQReader(schema, options)

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


def _schema(options: ReadOptions) -> StructType:
    """The columns of messages or of a table, those asked for."""
    if options.table is None:
        return schema_of(None if options.columns is None else canonical(options.columns), options.rows)
    from spark_bridge.tables.reader import table_schema

    return table_schema(options.table, options.columns)


def _table_reader(schema: StructType, options: ReadOptions) -> DataSourceReader:
    if options.flights is None:
        from spark_bridge.tables.reader import TableReader

        return TableReader(schema, options)
    from spark_bridge.flight.remote.table_reader import RemoteTableReader  # gRPC is for those who need it

    return RemoteTableReader(schema, options)


def _refuse_two_lists(options: ReadOptions, schema: StructType) -> None:
    """Columns are named by the option or by a schema."""
    if options.columns is not None and _schema(options).fieldNames() != schema.fieldNames():
        what = f"columns={','.join(options.columns)!r}, and a schema of {', '.join(schema.fieldNames())}"
        raise InvalidOption(f"{what}: name the columns once, by the option or by the schema (a table has its own)")
