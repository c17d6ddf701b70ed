"""Right answers in whatever order one frame, or one view, is used, with Spark's push-down of filters off and on.

Spark keeps one plan for all scans of a loaded frame, so whatever one query pushed would be in the next one's answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents use

import spark_bridge
from tests.spark_bridge.stores import SmallStore

pytestmark = pytest.mark.spark

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SEGMENT_BYTES = 16 << 10
ALL, OF_A, OF_B, OF_QUEUE_0 = 120, 40, 80, 60
Using = Callable[[SparkSession, str], tuple[list[int], list[int]]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Topics a (a third of the messages) and b, each half in queue 0 and half in queue 1, a tag on a fifth."""
    made = SmallStore(tmp_path_factory.mktemp("order"), SEGMENT_BYTES)
    for number in range(ALL):
        tag = b"TAGS\x01new\x02" if number % 5 == 0 else b""
        made.put("b" if number % 3 else "a", b"%d" % number, number // 3 % 2, properties=tag)
    made.dispatch()
    return str(made.root)


@pytest.fixture(params=["off", "on"])
def spark_pushing(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    """The session with push-down off, Spark's default, and on."""
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, "true" if request.param == "on" else "false")
    yield spark
    assert before is not None
    spark.conf.set(PUSHDOWN, before)


def load(spark: SparkSession, store: str, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").option("path", store).options(**options).load()


def reused(spark: SparkSession, store: str) -> tuple[list[int], list[int]]:
    frame = load(spark, store)
    a, b = frame.filter("topic = 'a'"), frame.filter(F.col("topic") == "b")
    counts = [a.count(), frame.count(), b.count(), a.count(), frame.filter("queueId = 0").count(), frame.count()]
    return counts, [OF_A, ALL, OF_B, OF_A, OF_QUEUE_0, ALL]


def planned_before_they_run(spark: SparkSession, store: str) -> tuple[list[int], list[int]]:
    frame = load(spark, store)
    counted = [frame.filter(f"topic = '{topic}'").groupBy().count() for topic in "ab"] + [frame.groupBy().count()]
    for query in counted:
        query._jdf.queryExecution().executedPlan()
    return [query.collect()[0][0] for query in reversed(counted)], [ALL, OF_B, OF_A]


def united(spark: SparkSession, store: str) -> tuple[list[int], list[int]]:
    frame = load(spark, store)
    both = frame.filter("topic = 'a' AND queueId = 0").union(frame.filter("topic = 'b'"))
    found = Counter(row.topic for row in both.select("topic").collect())
    return [found["a"], found["b"], frame.count()], [OF_A // 2, OF_B, ALL]


def joined_with_itself(spark: SparkSession, store: str) -> tuple[list[int], list[int]]:
    frame = load(spark, store).select("topic", "queueId", "physicalOffset")
    left, right = frame.filter("topic = 'a'"), frame.withColumnRenamed("topic", "other")
    same = left.join(right, ["queueId", "physicalOffset"])
    apart = left.crossJoin(frame.filter("topic = 'b'").select(F.col("physicalOffset").alias("at")))
    return [same.count(), apart.count(), left.count()], [OF_A, OF_A * OF_B, OF_A]


def view_twice(spark: SparkSession, store: str) -> tuple[list[int], list[int]]:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW twice USING rocketmq OPTIONS (path '{store}')")
    row = spark.sql(
        "SELECT (SELECT count(*) FROM twice WHERE topic = 'a'), (SELECT count(*) FROM twice WHERE topic = 'b'),"
        " (SELECT count(*) FROM twice WHERE topic IN ('a', 'b') AND queueId = 0), (SELECT count(*) FROM twice)"
    ).collect()[0]
    again = spark.sql("SELECT count(*) FROM twice").collect()[0][0]
    return [*row, again], [OF_A, OF_B, OF_QUEUE_0, ALL, ALL]


def explained_first(spark: SparkSession, store: str) -> tuple[list[int], list[int]]:
    frame = load(spark, store)
    frame.createOrReplaceTempView("explained")
    spark.sql("EXPLAIN EXTENDED SELECT * FROM explained WHERE topic = 'a'").collect()
    return [frame.count(), spark.sql("SELECT count(*) FROM explained").collect()[0][0]], [ALL, ALL]


def cached(spark: SparkSession, store: str) -> tuple[list[int], list[int]]:
    frame = load(spark, store).select("topic", "queueId")
    some = frame.filter("topic = 'a'").cache()
    counts = [some.count(), frame.count()]
    every = frame.cache()
    try:
        counts += [every.count(), every.filter("topic = 'b'").count(), some.count()]
    finally:
        some.unpersist()
        every.unpersist()
    return counts, [OF_A, ALL, ALL, OF_B, OF_A]


def tags_and_brokers(spark: SparkSession, store: str) -> tuple[list[int], list[int]]:
    frame = load(spark, store)
    broker = frame.select("brokerName").first()
    assert broker is not None
    tagged = frame.filter("tags = 'new'")
    named = frame.filter(F.col("brokerName") == broker[0])
    nobody = frame.filter("brokerName = 'nobody'")
    counts = [named.count(), nobody.count(), tagged.count(), frame.count()]
    return counts, [ALL, 0, ALL // 5, ALL]


def kafka_columns(spark: SparkSession, store: str) -> tuple[list[int], list[int]]:
    frame = load(spark, store, schema="kafka")
    return [frame.filter("partition = 0").count(), frame.count()], [OF_QUEUE_0, ALL]


def with_the_helper(spark: SparkSession, store: str) -> tuple[list[int], list[int]]:
    frame = spark_bridge.read(spark, store, columns=["topic", "queueId"])
    some = spark_bridge.read(spark, store, columns=["queueId"], where="topic = 'a'")
    counts = [frame.filter("topic = 'b'").count(), frame.count(), some.filter("queueId = 1").count(), some.count()]
    return counts, [OF_B, ALL, OF_A // 2, OF_A]


@pytest.mark.parametrize(
    "using",
    [
        reused, planned_before_they_run, united, joined_with_itself, view_twice, explained_first, cached,
        tags_and_brokers, kafka_columns, with_the_helper,
    ],
)  # fmt: skip
def test_answers_do_not_depend_on_what_was_asked_before(spark_pushing, store: str, using: Using) -> None:
    found, expected = using(spark_pushing, store)
    assert found == expected


def test_a_stream_joined_with_a_frame_and_the_frame_alone(spark_pushing, store: str, tmp_path: Path) -> None:
    frame = load(spark_pushing, store).select("topic", "queueId", "queueOffset")
    stream = spark_pushing.readStream.format("rocketmq").option("path", store).option("topic", "a").load()
    joined = stream.select("queueId", "queueOffset").join(frame.filter("topic = 'a'"), ["queueId", "queueOffset"])
    counts: list[int] = []
    query = (
        joined.writeStream.foreachBatch(lambda batch, _number: counts.append(batch.count()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(400)
    assert sum(counts) == OF_A
    assert frame.count() == ALL
    assert frame.filter("topic = 'b'").count() == OF_B
