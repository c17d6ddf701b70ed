"""A batch read of messages: planned once on the driver, and read in place by the executors.

The plan is made where Spark asks for partitions; executors get the log's end with their splits and never ask
again. They import this package, `store` and how remoting is spoken, and nothing else of the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_bridge import worker_process
from spark_bridge.options.read import ReadOptions
from spark_bridge.records.spark_schema import json_schema, settled
from spark_bridge.user_errors import in_one_line
from store.errors import QueueEntriesRemoved, SegmentRemoved

LOAD_AGAIN = (
    "a DataFrame or view keeps the plan of its first use: load it again (spark.read...load(), slipstream.read(...),"
    " CREATE OR REPLACE TEMPORARY VIEW ...), or CREATE TABLE ... USING rocketmq, which each query plans again"
)


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
            from spark_bridge.records.columns import Asked
            from spark_bridge.records.reading import counted_in_place

            if self.rows.side_files:
                from spark_bridge.columnar.reader import read_split
            else:
                from spark_bridge.records.reader import read_split
            asked = Asked.of(self.column_names, self.rows, self.arrow_schema)
            with first_plan_kept():
                yield from counted_in_place(read_split(partition.value, asked), self.arrow_schema)
        worker_process.keep_what_reading_loaded()


@contextmanager
def first_plan_kept() -> Iterator[None]:
    """Add to a 'removed' error the hint to load the frame again."""
    try:
        yield
    except (SegmentRemoved, QueueEntriesRemoved) as error:
        error.args = (f"{error}; {LOAD_AGAIN}",)
        raise


worker_process.keep_modules()
worker_process.keep_buffers()
