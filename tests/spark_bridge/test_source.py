"""Which filters the source takes into its plan, without a Spark session."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceReader, EqualNullSafe, EqualTo, GreaterThan, In, IsNotNull, Not

from spark_bridge.columns import schema_of
from spark_bridge.options import ReadOptions
from spark_bridge.pushed import Pushed
from spark_bridge.source import RocketMQReader

TOPIC, QUEUE, LENGTH = ("topic",), ("queueId",), ("bodyLength",)


def reader() -> RocketMQReader:
    return RocketMQReader(schema_of(), ReadOptions(("/store",)))


def test_equality_on_topic_and_queue_is_taken_the_rest_stays_with_spark() -> None:
    made = reader()
    left = [GreaterThan(LENGTH, 10), Not(EqualTo(TOPIC, "b")), IsNotNull(LENGTH), GreaterThan(QUEUE, 1)]
    filters = [IsNotNull(TOPIC), EqualTo(TOPIC, "a"), In(QUEUE, (1, 2, None)), *left]
    assert list(made.pushFilters(filters)) == left
    assert (made.pushed.topics, made.pushed.queue_ids) == ({"a"}, {1, 2})


def test_filters_on_one_column_are_met_together() -> None:
    made = reader()
    assert not list(made.pushFilters([In(TOPIC, ("a", "b")), EqualTo(TOPIC, "b"), EqualNullSafe(TOPIC, "c")]))
    assert made.pushed.topics == frozenset()


def test_tags_and_brokers_are_used_and_left_with_spark_and_kafkas_name_of_a_queue_is_known() -> None:
    made = reader()
    filters = [EqualTo(("tags",), "a"), In(("brokerName",), ("b", "c"))]
    assert list(made.pushFilters([*filters, EqualTo(("partition",), 3)])) == filters
    assert made.pushed == Pushed(None, frozenset({3}), frozenset({"a"}), frozenset({"b", "c"}))


def test_null_equals_nothing() -> None:
    made = reader()
    null_safe = EqualNullSafe(TOPIC, None)
    assert list(made.pushFilters([null_safe, EqualTo(QUEUE, None)])) == [null_safe]
    assert made.pushed.queue_ids == frozenset()


def test_spark_takes_the_reader_for_one_without_push_down_when_it_is_off() -> None:
    """Spark refuses readers that override pushFilters unless a conf is on, and tells them by this."""
    assert reader().pushFilters.__func__ is DataSourceReader.pushFilters
