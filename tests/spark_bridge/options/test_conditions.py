"""Conditions of a read as Spark understands them: what is taken into the plan, and that no row is lost by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents use

import spark_bridge
from spark_bridge.options.conditions import Analysed, admitted, columns_named, ranged
from spark_bridge.options.ranges import Range
from tests.spark_bridge.stores import SmallStore

pytestmark = pytest.mark.spark


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    made = SmallStore(tmp_path, 4096)
    for number in range(60):
        tag = b"TAGS\x01new\x02" if number % 2 else b""
        made.put("ab"[number % 2], b"%d" % number, number % 3, properties=tag)
    made.dispatch()
    return made


def frame_of(spark: SparkSession) -> DataFrame:
    return spark.read.format("rocketmq").option("path", "/nowhere").load()


CONDITIONS: list[tuple[str, dict[str, set[Any]]]] = [
    ("topic = 'a' AND queueId IN (1, 2)", {"topic": {"a"}, "queueId": {1, 2}}),
    ("'a' = TOPIC and `queueid` <=> 1", {"topic": {"a"}, "queueId": {1}}),
    ("topic IN ('a', 'b') AND (topic = 'b' AND bodyLength > 3)", {"topic": {"b"}}),
    ("topic = 'a' AND topic = 'b'", {"topic": set()}),
    ("topic = \"it's\" AND brokerName = 'b'", {"topic": {"it's"}, "brokerName": {"b"}}),
    ("tags = 'x' AND tags IS NOT NULL", {"tags": {"x"}}),
    ("queueId IN (1, NULL)", {}),
    ("topic = NULL", {"topic": set()}),
    ("topic <=> NULL", {}),
    ("topic = 'a' OR queueId = 1", {}),
    ("NOT topic = 'a'", {}),
    ("topic NOT IN ('a')", {}),
    ("upper(topic) = 'A'", {}),
    ("queueId = 1.5", {}),
    ("queueId = 4294967297", {}),
    ("topic = tags", {}),
    ("topic COLLATE UTF8_LCASE = 'A'", {}),
    ("'a' IN (topic, tags)", {}),
    ("queueId > 1 AND queueOffset = 3", {}),
]


@pytest.mark.parametrize(("condition", "expected"), CONDITIONS)
def test_equalities_that_every_row_meets_are_taken(spark: SparkSession, condition: str, expected: Any) -> None:
    assert admitted(Analysed.of(frame_of(spark), condition)) == expected


RANGES: list[tuple[str, dict[str, Range]]] = [
    ("queueOffset > 5 AND 7 >= QUEUEOFFSET", {"queueOffset": Range(6, 8)}),
    ("queueOffset = 4", {"queueOffset": Range(4, 5)}),
    ("queueOffset BETWEEN 5 AND 6 AND topic = 'a'", {"queueOffset": Range(5, 7)}),
    ("queueOffset NOT BETWEEN 5 AND 6", {}),
    ("physicalOffset < 100L AND physicalOffset < 90 AND physicalOffset > -5", {"physicalOffset": Range(-4, 90)}),
    ("storeTimestamp >= '2001-09-09 01:50:00'", {"storeTimestamp": Range(1_000_000_200_000)}),
    ("storeTimestamp > timestamp'2001-09-09 01:50:00'", {"storeTimestamp": Range(1_000_000_200_001)}),
    ("storeTimestamp < timestamp'2001-09-09 01:50:00.0005'", {"storeTimestamp": Range(None, 1_000_000_200_001)}),
    ("bornTimestamp <= DATE'2001-09-09'", {"bornTimestamp": Range(None, 999_993_600_001)}),
    ("queueOffset > '5'", {"queueOffset": Range(6)}),
    ("queueOffset > queueId", {}),
    ("queueOffset > 3 OR topic = 'a'", {}),
    ("NOT queueOffset > 3", {}),
    ("queueOffset > NULL", {}),
    ("queueOffset > 'x'", {}),
    ("queueId > 3", {}),
    ("queueOffset + 1 > 3", {}),
    ("CAST(queueOffset AS int) > 3", {}),
    ("storeTimestamp < current_timestamp()", {}),  # it is another time when the query runs
    ("storeTimestamp < now() - interval 1 hour", {}),
]


@pytest.mark.parametrize(("condition", "expected"), RANGES)
def test_comparisons_that_every_row_meets_are_taken(spark: SparkSession, condition: str, expected: Any) -> None:
    assert ranged(Analysed.of(frame_of(spark), condition)) == expected


def test_kafkas_names_of_offsets_and_times(spark: SparkSession) -> None:
    frame = spark.read.format("rocketmq").option("path", "/nowhere").option("schema", "kafka").load()
    assert ranged(Analysed.of(frame, F.col("offset").between(3, 5))) == {"offset": Range(3, 6)}
    assert ranged(Analysed.of(frame, "timestamp < timestamp'1970-01-01 00:00:01'")) == {"timestamp": Range(None, 1000)}


def test_columns_and_functions_of_python_are_understood_alike(spark: SparkSession) -> None:
    condition: Column = (F.col("topic") == "a") & F.col("queueId").isin(0, 2) & (F.length("body") > F.col("flag"))
    assert admitted(Analysed.of(frame_of(spark), condition)) == {"topic": {"a"}, "queueId": {0, 2}}
    assert columns_named(Analysed.of(frame_of(spark), condition)) == {"topic", "queueId", "body", "flag"}
    in_another_case = Analysed.of(frame_of(spark), "QUEUEID = 1 AND properties['x'] = 'topic'")
    assert columns_named(in_another_case) == {"queueId", "properties"}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("topic = 'a'", 30),
        ("topic = 'a' AND QUEUEID = 0", 10),
        ("topic = 'a' OR queueId = 1", 40),
        ("tags = 'new' AND length(body) = 2", 25),
        ("topic <=> 'nowhere'", 0),
        ("topic IN ('a', 'b') AND topic <> 'a'", 30),
        ("topic = 'a' AND queueOffset BETWEEN 3 AND 5", 9),
        ("physicalOffset >= 300 AND physicalOffset < 300", 0),
        ("storeTimestamp < timestamp'1970-01-01 00:00:01' AND queueOffset > 7", 12),
    ],
)
def test_a_read_gives_the_rows_that_a_filter_gives(
    spark: SparkSession, store: SmallStore, where: str, expected: int
) -> None:
    frame = spark_bridge.read(spark, str(store.root), columns=["queueOffset"], where=where)
    assert frame.columns == ["queueOffset"]
    assert frame.count() == expected
    assert spark_bridge.read(spark, str(store.root)).filter(where).count() == expected


def test_what_a_condition_leaves_out_is_not_touched(spark: SparkSession, store: SmallStore) -> None:
    """A damaged record of another topic: a read of the log finds it, one of the topic's queues does not come by."""
    for number in range(300):  # it lies far below the end, which recovery looks at
        store.put("a", b"more", number % 3)
    store.dispatch()
    offset = next(offset for offset, _, topic, _, _ in store.records if topic == "b")
    segment = store.root / "commitlog" / f"{offset - offset % 4096:020d}"
    content = bytearray(segment.read_bytes())
    content[offset % 4096 + 4] ^= 0xFF
    segment.write_bytes(content)
    named = spark_bridge.read(spark, str(store.root), columns=["queueId"], where="topic = 'a' AND queueId < 9")
    assert named.count() == 330
    with pytest.raises((AnalysisException, PythonException), match="offset"):
        spark_bridge.read(spark, str(store.root)).filter("topic = 'a'").count()


def test_a_topic_of_the_brokers_own_is_not_shown_by_a_condition(spark: SparkSession, tmp_path: Path) -> None:
    made = SmallStore(tmp_path, 4096)
    made.put("SCHEDULE_TOPIC_XXXX", b"later")
    made.put("a", b"now")
    made.dispatch()
    where = "topic = 'SCHEDULE_TOPIC_XXXX'"
    assert spark_bridge.read(spark, str(made.root), where=where).count() == 0
    assert spark_bridge.read(spark, str(made.root), where=where, includeSystemTopics=True).count() == 1
