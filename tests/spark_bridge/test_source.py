"""What the source tells Spark of itself, without a Spark session."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceReader

from spark_bridge.batch import RocketMQReader
from spark_bridge.kernels import KernelReader
from spark_bridge.tables.reader import TableReader


def test_no_reader_takes_filters_into_its_plan() -> None:
    """Spark keeps one plan for all scans of a loaded frame: a filter in it would be in every answer."""
    for reader in (RocketMQReader, KernelReader, TableReader):
        assert reader.pushFilters is DataSourceReader.pushFilters
