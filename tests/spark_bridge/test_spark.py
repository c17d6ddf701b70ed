"""A real Spark session on a store: counts, sums, filters, pruning, options, SQL."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents use

import spark_bridge
from store.message.topics import is_system_topic
from tests.spark_bridge.checks import Sent, assert_spark_reads
from tests.spark_bridge.stores import Row, SmallStore, golden_lines, unpack_golden

pytestmark = pytest.mark.spark

GOLDEN = ("rocketmq-4.9.7", "master")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return unpack_golden(*GOLDEN, tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def messages() -> list[Row]:
    """What consumers may ask for: the broker's own topics are read on request only."""
    return [line for line in golden_lines(*GOLDEN, "message") if not is_system_topic(line["topic"])]


def load(spark: SparkSession, store: str, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.read.format("rocketmq").option("path", store).options(**options)
    return (reader.schema(schema) if schema else reader).load()


def test_found_without_being_registered_and_every_row_is_there(spark, store, messages):
    found = load(spark, store).orderBy("physicalOffset").collect()
    assert [row.msgId for row in found] == [line["offsetMsgId"] for line in messages]
    assert [row.topic for row in found] == [line["topic"] for line in messages]
    assert [row.properties for row in found] == [line["properties"] for line in messages]
    assert [len(row.body) for row in found] == [row.bodyLength for row in found]
    assert [round(row.storeTimestamp.timestamp() * 1000) for row in found] == [
        line["storeTimestamp"] for line in messages
    ]


def test_each_message_is_a_row_once_however_it_is_asked_for(spark, tmp_path):
    made = SmallStore(tmp_path, 4096)
    sent = []
    for number in range(90):
        topic, queue_id, body = ("orders", "payments")[number % 2], number % 3, bytes([number]) * number
        made.put(topic, body, queue_id)
        sent.append(Sent(topic, queue_id, made.records[-1][4], body))
    made.dispatch()
    assert_spark_reads(spark, str(made.root), sent)


def test_sums_over_a_pruned_schema_and_several_splits(spark, store, messages):
    pruned = load(spark, store, "queueId int, queueOffset bigint", splitBytes="65536")
    assert pruned.rdd.getNumPartitions() > 8
    row = pruned.agg(F.count("*").alias("n"), F.sum("queueOffset").alias("s")).first()
    assert row is not None
    assert (row.n, row.s) == (len(messages), sum(line["queueOffset"] for line in messages))


def test_filters_are_sparks_own(spark, store, messages):
    frame = load(spark, store, "topic string, queueId int, bodyLength int")
    wanted = frame.filter("topic = 'alphaFour' and queueId in (1, 2) and bodyLength > 10")
    expected = [
        line["storedBodyLength"]
        for line in messages
        if line["topic"] == "alphaFour" and line["queueId"] in (1, 2) and line["storedBodyLength"] > 10
    ]
    assert sorted(row.bodyLength for row in wanted.collect()) == sorted(expected)
    assert frame.filter("topic = 'nowhere'").count() == 0
    assert frame.filter("topic = 'alphaFour' and topic = 'alphaOne'").count() == 0


def test_topic_option_and_offsets_select_as_in_kafka(spark, store, messages):
    topics = Counter(row.topic for row in load(spark, store, "topic string", subscribe="alphaOne,alphaTx").collect())
    assert topics == Counter(line["topic"] for line in messages if line["topic"] in ("alphaOne", "alphaTx"))
    offsets = load(
        spark,
        store,
        "queueOffset bigint",
        startingOffsets='{"alphaOne":{"0":5}}',
        endingOffsets='{"alphaOne":{"0":9}}',
    )
    assert sorted(row.queueOffset for row in offsets.collect()) == [5, 6, 7, 8]


def test_the_helper_sets_columns_and_topics(spark, store, messages):
    frame = spark_bridge.read(spark, store, columns=["queueId", "body"], topics=["alphaEight"], verifyCrc="body")
    assert frame.columns == ["queueId", "body"]
    expected = Counter(line["queueId"] for line in messages if line["topic"] == "alphaEight")
    assert {row.queueId: row["count"] for row in frame.groupBy("queueId").count().collect()} == expected


def test_neither_helper_changes_a_session_that_runs(spark, store):
    before = dict(spark.conf.getAll)
    with pytest.warns(UserWarning, match="is already running, without spark.sql.ansi.enabled, spark.ui.enabled"):
        same = spark_bridge.session("other", **{"spark.sql.ansi.enabled": False, "spark.ui.enabled": True})
    assert same is spark
    assert spark_bridge.session() is spark
    spark_bridge.read(spark, store, columns=["queueId"], where="topic = 'alphaOne'").count()
    assert dict(spark.conf.getAll) == before


def test_a_view_in_sql(spark, store, messages):
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW log USING rocketmq OPTIONS (path '{store}', topic 'alphaBatch')")
    (row,) = spark.sql("SELECT count(*) AS n, sum(length(body)) AS bytes FROM log WHERE tags IS NOT NULL").collect()
    tagged = [line for line in messages if line["topic"] == "alphaBatch" and line["tags"]]
    assert (row.n, row.bytes or 0) == (len(tagged), sum(line["storedBodyLength"] for line in tagged))


@pytest.mark.parametrize(
    ("schema", "options", "told"),
    [
        (None, {"topics": "x"}, "did you mean 'topic'"),
        ("queueID int", {}, "did you mean 'queueId'"),
        ("queueOffset int", {}, "column queueOffset is bigint"),
        ("queueId int", {"startingOffsets": "first"}, "give earliest"),
    ],
)
def test_errors_of_options_and_columns_say_what_would_do(spark, store, schema, options, told):
    with pytest.raises((AnalysisException, PythonException)) as caught:
        load(spark, store, schema, **options).count()
    assert told in str(caught.value)


def test_a_directory_without_a_log_is_reported(spark, tmp_path):
    with pytest.raises((AnalysisException, PythonException), match="not a store"):
        load(spark, str(tmp_path), "queueId int").count()


def test_damage_ends_the_read_with_file_and_offset(spark, store, tmp_path):
    root = Path(unpack_golden(*GOLDEN, tmp_path))
    segment = root / "commitlog" / f"{0:020d}"
    content = bytearray(segment.read_bytes())
    content[302 + 4] ^= 0xFF  # the second record's magic code, far below the end that recovery looks at
    segment.write_bytes(content)
    with pytest.raises((AnalysisException, PythonException)) as caught:
        load(spark, str(root), "queueId int").count()
    assert "offset 302" in str(caught.value)
    assert str(segment) in str(caught.value)
