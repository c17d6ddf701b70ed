"""A numpy kernel on the mapped segments, inside the executors: only what it returns crosses to the JVM.

A kernel is called with some thousands of records at a time (`Records`: the mapped window, and where each record and its
parts begin in it), never with copies of them. What it returns is rows of a DataFrame: one for each record, one for all
of them, or none. So a sum or a count is partial, and Spark adds up the parts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_bridge.batch import RocketMQReader, first_plan_kept
from spark_bridge.options.read import parse_options
from spark_bridge.options.values import InvalidOption
from spark_bridge.records.columns import Asked
from spark_bridge.records.reader import read_split
from spark_bridge.records.spark_schema import schema_of
from spark_bridge.user_errors import in_one_line, one_line
from store.columns.columns import Column
from store.columns.records import Records

FORMAT = "rocketmq-kernel"
PLANNED_BY = "queueId"  # any column: the plan of a read does not depend on it

Kernel = Callable[[Records], Sequence[Any] | None]

_registering = threading.Lock()  # one name for all kernels: what is loaded keeps its own


class KernelFailed(Exception):
    """Raised when a kernel returned data that does not match its schema.

    Next: return one array for each column of the schema, all of one length and of its type.
    """

    code = "KERNEL_FAILED"


def map_segments(
    spark: SparkSession,
    store: str | Path,
    kernel: Kernel,
    schema: StructType | str,
    topics: Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """Return what `kernel` returns for all records of a store, or of some topics, as a DataFrame of `schema`.

    It returns a sequence with one array (numpy, Arrow or a list) for each column, all of one length, or None for
    nothing. Spark sends it to the executors, so it must be picklable. Options are those of a read.
    """
    struct = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
    if not isinstance(struct, StructType) or not struct.fields:
        raise InvalidOption(f"the schema of a kernel is columns with names, not {schema!r}")
    if topics is not None:
        options["topic"] = ",".join(topics)
    with _registering:
        spark.dataSource.register(_source_of(kernel, struct))
        return spark.read.format(FORMAT).option("path", str(store)).options(**options).load()


def _source_of(kernel: Kernel, struct: StructType) -> type[DataSource]:
    """A data source of this kernel alone: its class is pickled with what it encloses."""

    class KernelSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> StructType:
            return struct

        @in_one_line
        def reader(self, schema: StructType) -> DataSourceReader:
            return KernelReader(kernel, schema, self.options)

    return KernelSource


class KernelReader(DataSourceReader):
    """Plans as any read does; gives the records to the kernel instead of building columns."""

    def __init__(self, kernel: Kernel, schema: StructType, given: Mapping[str, str]) -> None:
        self._kernel, self._schema = kernel, schema
        options = parse_options(given)
        if options.table is not None:
            raise InvalidOption(f"table={options.table}: a kernel is called with records, not with rows of a table")
        if options.flights is not None:
            raise InvalidOption("path: a kernel runs on mapped segments, which a Flight server cannot provide")
        if options.columns is not None:
            raise InvalidOption("columns: a kernel is called with records, and returns the columns of its own schema")
        if options.rows.permissive:
            raise InvalidOption("mode=permissive needs rows, which a kernel does not get for damaged records")
        self._planner = RocketMQReader(schema_of([PLANNED_BY]), options)

    def partitions(self) -> Sequence[InputPartition]:
        """The splits, planned against the log's end as it is now."""
        return self._planner.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the kernel's batches of one split; a partition without a value, which Spark makes up, has none."""
        if partition.value is not None:
            arrow_schema = to_arrow_schema(self._schema, timezone="UTC")
            columns = kernel_columns(self._kernel, self._schema, arrow_schema)
            with one_line(of_files=False), first_plan_kept():  # a kernel's own errors keep their stack
                yield from read_split(partition.value, Asked(columns, arrow_schema, self._planner.rows))


def kernel_columns(kernel: Kernel, schema: StructType, arrow_schema: pa.Schema) -> list[Column]:
    """A kernel's results as columns; it is called once for each `Records`."""
    held: list[tuple[Records, list[Any]]] = []

    def result(place: int, records: Records) -> Any:
        if not held or held[0][0] is not records:
            held[:] = [(records, _arrays(kernel(records), arrow_schema))]
        return held[0][1][place]

    return [
        Column(field.name, field.type, partial(result, place), heavy=True) for place, field in enumerate(arrow_schema)
    ]


def _arrays(returned: Sequence[Any] | None, schema: pa.Schema) -> list[Any]:
    """The columns that a kernel returned, in their types. Raises KernelFailed."""
    if returned is None:
        return [pa.array([], field.type) for field in schema]
    if len(returned) != len(schema):
        raise KernelFailed(f"the kernel returned {len(returned)} columns, its schema has {len(schema)}")
    arrays = []
    for values, field in zip(returned, schema, strict=True):
        try:
            arrays.append(_array(values, field.type))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise KernelFailed(f"column {field.name}, {field.type}: {error}") from error
    lengths = {field.name: len(array) for field, array in zip(schema, arrays, strict=True)}
    if len(set(lengths.values())) > 1:
        raise KernelFailed(f"the kernel returned columns of different lengths: {lengths}")
    return arrays


def _array(values: Any, kind: pa.DataType) -> Any:
    if isinstance(values, np.ndarray):
        native = np.ascontiguousarray(values, values.dtype.newbyteorder("="))  # fields of records are big-endian
        return pa.array(native).cast(kind)
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)
