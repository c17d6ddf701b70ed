"""A read as one frame: side files through Spark's vectorised Parquet reader, the rest of the log through splits.

All is planned when the frame is made, on one view of the log's end, under the plan's leases. Bodies are fetched from
the segments when the conditions have been met, by where the records lie. Only a session whose tasks run on this host
reads side files so: what was checked here is what is read. Elsewhere the source's own tasks check what lies there.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from importlib.util import find_spec
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from spark_bridge.batch import first_plan_kept
from spark_bridge.columnar.names import CONSTANT, POSITION, SIZE, side_name
from spark_bridge.columnar.opened import NAMES
from spark_bridge.columnar.reader import read_split
from spark_bridge.options.columns import REPLICA_COLUMN
from spark_bridge.options.read import ReadOptions
from spark_bridge.options.rows import RowOptions
from spark_bridge.parquet_reads.bodies import LENGTH, PLACE, fetch
from spark_bridge.parquet_reads.conditions import condition_of
from spark_bridge.parquet_reads.parts import SideFiles, SideRead
from spark_bridge.plan.planner import plan_under_leases
from spark_bridge.preferred_hosts import tickets_frame
from spark_bridge.records.columns import BY_NAME, CREATE_TIME, IN_PLACE, Asked
from spark_bridge.records.spark_schema import settled, spark_type
from spark_bridge.user_errors import one_line
from spark_bridge.worker_process import keep_what_reading_loaded
from store.columns.spans import INT

logger = logging.getLogger("slipstream.spark")

PARQUET_OPTIONS = {
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",  # times are those of the calendar of today, however old
}
GLOB_MARKS = frozenset("{}[]*?\\")


def is_of_records(name: str) -> bool:
    """Whether a column is in no side file, and no constant."""
    return side_name(name) not in NAMES and name not in CONSTANT


class Shape(NamedTuple):
    """The shape of rows: the frame's schema, and the options of its rows."""

    schema: StructType
    rows: RowOptions

    @property
    def of_records(self) -> bool:
        """Whether some columns are in no side file."""
        return any(map(is_of_records, self.schema.fieldNames()))

    def asked(self) -> Asked:
        """What a task asks of records, made there: columns are not pickled."""
        return Asked.of(self.schema.fieldNames(), self.rows, to_arrow_schema(self.schema, timezone="UTC"))


def parquet_frame(
    spark: SparkSession,
    schema: StructType,
    options: ReadOptions,
    where: tuple[str | Column, Sequence[str]] | None = None,
) -> DataFrame | None:
    """The rows of a read that meet a condition, given with the columns that it names; None: the source does it best.

    That is without a valid side file, where bodies are wanted of all rows, and where tasks have limits. Raises what
    planning raises.
    """
    shape = Shape(schema, settled(schema, options.rows))
    condition, named = where or (None, ())
    if not _is_possible(spark, shape, options, condition, named):
        return None
    names = {side_name(name) for name in schema.fieldNames()} & NAMES
    files = SideFiles(names | ({POSITION, SIZE} if shape.of_records else set()))
    splits, leases = plan_under_leases(options, None if shape.of_records else files.extents)
    reads, rest = files.parted(splits)
    if not reads:
        for lease in leases:
            lease.release()
        return None
    logger.info("%d segments from side files, %d splits in place", sum(len(one.paths) for one in reads), len(rest))
    frames = [_of_side_files(spark, read, shape, condition) for read in reads]
    if rest:
        tickets: list[tuple[bytes, list[str]]] = [(pickle.dumps(split), []) for split in rest]
        frame = tickets_frame(spark, tickets).mapInArrow(_reading(shape), schema)
        frames.append(frame if condition is None else frame.filter(condition))
    return reduce(DataFrame.unionAll, frames)


def _is_possible(
    spark: SparkSession, shape: Shape, options: ReadOptions, condition: str | Column | None, named: Iterable[str]
) -> bool:
    rows = options.rows
    if not rows.side_files or rows.permissive or rows.verify_body_crc or options.flights is not None:
        return False
    if shape.of_records and (condition is None or any(map(is_of_records, named))):
        return False
    if options.partition_records_max is not None or options.partition_bytes_max is not None:
        return False
    if getattr(spark, "_jvm", None) is None or find_spec("pandas") is None:
        return False
    return str(spark.sparkContext.master).startswith("local")


def _of_side_files(spark: SparkSession, read: SideRead, shape: Shape, condition: str | Column | None) -> DataFrame:
    schema = shape.schema
    names = {side_name(name) for name in schema.fieldNames()} & NAMES | read.columns
    names |= {POSITION, SIZE} if shape.of_records else set()
    kinds = {name: INT if name == SIZE else BY_NAME[name].kind for name in sorted(names)}
    reader = spark.read.schema(StructType([StructField(name, spark_type(kind)) for name, kind in kinds.items()]))
    frame = reader.options(**PARQUET_OPTIONS).parquet(*map(_as_url, read.paths))
    wanted = condition_of(read)
    if wanted is not None:
        frame = frame.filter(wanted)
    columns = [_column(field, read.log.broker_name) for field in schema if not is_of_records(field.name)]
    places = [f"`{POSITION}` AS `{PLACE}`", f"`{SIZE}` AS `{LENGTH}`"] if shape.of_records else []
    frame = frame.selectExpr(*columns, *places)
    if condition is not None:
        frame = frame.filter(condition)
    if not shape.of_records:
        return frame
    return frame.mapInArrow(_fetching(read, shape), schema)


def _column(field: StructField, broker_name: str) -> str:
    """A column of the frame in SQL, from those of side files: one call into Java for all, not ten for each."""
    constants = {"brokerName": broker_name or None, "timestampType": CREATE_TIME, REPLICA_COLUMN: IN_PLACE}
    value = f"`{side_name(field.name)}`"
    if field.name in CONSTANT:
        value = _literal(constants.get(field.name))
    return f"CAST({value} AS {field.dataType.simpleString()}) AS `{field.name}`"


def _literal(value: str | int | None) -> str:
    """Return a value as SQL; a text by its bytes, since the meaning of quotes depends on the session."""
    if isinstance(value, str):
        return f"CAST(X'{value.encode().hex()}' AS STRING)"
    return "NULL" if value is None else str(value)


def _as_url(path: str) -> str:
    """The path of one file, whatever Spark's patterns mean."""
    return "file://" + "".join(f"\\{letter}" if letter in GLOB_MARKS else letter for letter in path)


def _fetching(read: SideRead, shape: Shape) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    log = read.log

    def fetching(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with one_line(), first_plan_kept():
            yield from fetch(batches, log, shape.asked())
        keep_what_reading_loaded()

    return fetching


def _reading(shape: Shape) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def reading(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        asked = shape.asked()
        with one_line(), first_plan_kept():
            for batch in batches:
                for value in batch.column(0):
                    yield from read_split(pickle.loads(value.as_py()), asked)
        keep_what_reading_loaded()

    return reading
