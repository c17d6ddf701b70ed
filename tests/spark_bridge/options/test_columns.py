"""The columns as options know them, without Arrow: the same ones, in the same types, as those that are read."""

from __future__ import annotations

from pyspark.sql.pandas.types import from_arrow_type

from spark_bridge.options.columns import KAFKA_TYPES, ROCKETMQ_TYPES, TYPES
from spark_bridge.records.columns import BY_NAME, KAFKA_COLUMNS
from spark_bridge.records.spark_schema import schema_of
from store.columns.columns import COLUMNS


def test_the_columns_that_are_read_are_those_that_are_declared_in_their_order() -> None:
    assert [column.name for column in COLUMNS] == list(ROCKETMQ_TYPES)
    assert [column.name for column in KAFKA_COLUMNS] == list(KAFKA_TYPES)
    assert BY_NAME.keys() == TYPES.keys()


def test_each_column_is_read_in_the_type_that_spark_is_told() -> None:
    for column in BY_NAME.values():
        assert schema_of([column.name])[column.name].dataType == from_arrow_type(column.kind, prefer_timestamp_ntz=True)
