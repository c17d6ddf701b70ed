"""`option("table", ...)`: queues, topics, segments, replicas and consumer groups of stores as small tables.

Counts by topic and queue, first and last offsets and times come from the queues alone. The rows are made where Spark
plans the read, because cursors and recovery are the driver's part; there is one partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from spark_bridge.options.read import ReadOptions
from spark_bridge.options.values import InvalidOption, nearest
from spark_bridge.records.spark_schema import spark_type
from spark_bridge.tables.columns import TABLES, batch_of, columns_of_table
from spark_bridge.user_errors import in_one_line


def table_schema(table: str, names: Sequence[str] | None = None) -> StructType:
    """Spark's schema of a metadata table, or of its columns that are named, in any case. Raises InvalidOption."""
    return StructType([StructField(name, spark_type(kind)) for name, kind in columns_of_table(table, names)])


class TableReader(DataSourceReader):
    """A read of one metadata table, of all its columns or of those that a schema names."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        assert options.table is not None
        self.options, self.table = options, options.table
        self.arrow_schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        _refuse_others(self.table, schema)

    @in_one_line
    def partitions(self) -> list[InputPartition]:
        """Return all rows in one partition."""
        return [InputPartition(list(self._batches()))]

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Yield what there is now. Raises what finding the stores and the log's ends raises, and MalformedConfig."""
        from spark_bridge.plan.names import refuse_missing  # the driver's part only: executors need no cursors
        from spark_bridge.plan.stores import resolve_stores
        from spark_bridge.tables.rows import rows_of

        stores = resolve_stores(self.options)
        refuse_missing(self.options, stores)
        columns = columns_of_table(self.table, self.arrow_schema.names)
        yield batch_of(self.table, columns, rows_of(self.table, stores, self.options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows, as they were when the read was planned."""
        for batch in partition.value:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self.arrow_schema)


def _refuse_others(table: str, schema: StructType) -> None:
    """Raise InvalidOption for a column that the table lacks, or has as another type."""
    kinds = {name: spark_type(kind) for name, kind in TABLES[table]}
    for field in schema.fields:
        if field.name not in kinds:
            raise InvalidOption(f"no column {field.name!r} in table {table}; {nearest(field.name, list(kinds))}")
        if field.dataType != kinds[field.name]:
            wanted, given_type = kinds[field.name].simpleString(), field.dataType.simpleString()
            raise InvalidOption(f"column {field.name} of table {table} is {wanted}, the schema says {given_type}")
