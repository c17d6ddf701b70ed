"""A real Spark session writes into a running broker: batches and streams, RocketMQ's column names and Kafka's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession

import spark_bridge
from tools.common.local_broker import LocalBroker

pytestmark = pytest.mark.spark

SIZES = {"mappedFileSizeCommitLog": 1 << 20, "maxMessageSize": 1 << 16}
REFUSED = (AnalysisException, PythonException)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with LocalBroker(tmp_path_factory.mktemp("sink") / "master", brokerRole="ASYNC_MASTER", **SIZES) as running:
        yield str(running.store)


def save(frame: DataFrame, store: str, **options: str) -> None:
    frame.write.format("rocketmq").mode("append").option("path", store).options(**options).save()


def rows_of(spark: SparkSession, store: str, topic: str, *columns: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in spark_bridge.read(spark, store, columns=columns, topics=[topic]).collect()]


def test_a_frame_is_written_and_read_back_with_all_its_columns(spark: SparkSession, store: str) -> None:
    frame = spark.range(0, 500, 1, 3).selectExpr(
        "'all' AS topic",
        "concat('tag', id % 3) AS tags",
        "concat('k', id) AS keys",
        "map('n', cast(id AS string)) AS properties",
        "cast(concat('body ', id) AS binary) AS body",
    )
    save(frame, store)
    found = spark_bridge.read(spark, store, columns=["tags", "keys", "properties", "body"], topics=["all"]).collect()
    assert Counter((row.tags, row.keys, row.properties["n"], bytes(row.body)) for row in found) == Counter(
        (f"tag{n % 3}", f"k{n}", str(n), f"body {n}".encode()) for n in range(500)
    )
    assert len({row.properties["UNIQ_KEY"] for row in found}) == 500


def test_a_frame_made_for_kafka_is_written_as_it_is(spark: SparkSession, store: str) -> None:
    frame = spark.range(100).selectExpr(
        "cast(id % 5 AS string) AS key",
        "cast(id AS string) AS value",
        "array(named_struct('key', 'h', 'value', cast('x' AS binary))) AS headers",
    )
    save(frame, store, topic="kafkas", acks="all")
    found = rows_of(spark, store, "kafkas", "keys", "queueId", "body", "properties")
    assert Counter((key, bytes(body), properties["h"]) for key, _, body, properties in found) == Counter(
        (str(n % 5), str(n).encode(), "x") for n in range(100)
    )
    assert len({(key, queue) for key, queue, _, _ in found}) == 5


def test_what_was_read_is_written_to_another_topic(spark: SparkSession, store: str) -> None:
    made = spark.range(50).selectExpr("'t' AS tags", "concat('k', id) AS keys", "cast(id AS string) AS body")
    save(made, store, topic="from")
    read = spark_bridge.read(spark, store, columns=["tags", "keys", "properties", "body"], topics=["from"])
    with pytest.raises(REFUSED, match="RocketMQ keeps this name for itself"):
        save(read, store, topic="to")
    save(read, store, topic="to", systemProperties="drop")
    wanted = ("tags", "keys", "body")
    assert Counter(rows_of(spark, store, "to", *wanted)) == Counter(rows_of(spark, store, "from", *wanted))


def test_what_was_read_with_kafkas_columns_is_written_elsewhere_as_it_is(spark: SparkSession, store: str) -> None:
    made = spark.range(60).selectExpr(
        "'t' AS tags",
        "concat('k', id) AS key",
        "cast(id AS string) AS value",
        "map('trace', cast(id AS string)) AS properties",
    )
    save(made, store, topic="kafka-from")

    def read(topic: str) -> DataFrame:
        reader = spark.read.format("rocketmq").option("path", store).option("schema", "kafka")
        return reader.option("includeHeaders", "true").option("subscribe", topic).load()

    server = {"kafka.bootstrap.servers": "nobody:9092", "kafka.acks": "all", "includeHeaders": "true"}
    save(read("kafka-from"), store, topic="kafka-to", **server)

    def told(topic: str) -> Counter[tuple[object, ...]]:
        return Counter(
            (
                bytes(row.key),
                bytes(row.value),
                row.partition,
                *sorted((header.key, bytes(header.value)) for header in row.headers if header.key != "UNIQ_KEY"),
            )
            for row in read(topic).collect()
        )

    assert told("kafka-to") == told("kafka-from")
    assert sum(told("kafka-to").values()) == 60
    assert all(("trace", row[1]) in row[3:] and ("TAGS", b"t") in row[3:] for row in told("kafka-to"))


def test_a_batch_read_that_was_a_stream_warns_of_its_limits(spark: SparkSession, store: str) -> None:
    save(spark.range(30).selectExpr("cast(id AS string) AS body"), store, topic="limited")
    reader = spark.read.format("rocketmq").option("path", store).option("topic", "limited")
    assert reader.option("maxOffsetsPerTrigger", "5").option("minOffsetsPerTrigger", "2").load().count() == 30


def test_a_write_with_an_id_may_be_repeated(spark: SparkSession, store: str) -> None:
    frame = spark.range(0, 300, 1, 2).selectExpr("cast(id % 100 AS string) AS body")
    for _attempt in range(2):
        save(frame, store, topic="once", writeId="day-1")
    save(frame, store, topic="once", writeId="day-2")
    assert Counter(rows_of(spark, store, "once", "body")) == Counter([(str(n % 100).encode(),) for n in range(300)] * 2)


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        ("'b' AS body", {"topic": "t", "tpoic": "t"}, "did you mean 'topic'"),
        ("'b' AS body, 1 AS tagz", {"topic": "t"}, "did you mean 'tags'"),
        ("'b' AS body", {}, "no topic: a column topic"),
        ("1 AS body", {"topic": "t"}, "column body is string or binary, the rows have int"),
        ("cast(null AS string) AS body", {"topic": "t"}, "row 0 of this task: body: it is null"),
        ("'b' AS body", {"topic": "no spaces"}, "characters of % | a-z A-Z 0-9 _ - are allowed"),
    ],
)
def test_a_frame_that_cannot_be_written_is_refused(
    spark: SparkSession, store: str, columns: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(REFUSED) as caught:
        save(spark.range(1).selectExpr(*columns.split(", ")), store, **options)
    assert told in str(caught.value)


def test_overwriting_is_refused(spark: SparkSession, store: str) -> None:
    with pytest.raises(REFUSED, match="cannot be overwritten"):
        spark.range(1).selectExpr("'b' AS body").write.format("rocketmq").mode("overwrite").options(
            path=store, topic="t"
        ).save()


def test_a_host_without_an_engine_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(REFUSED) as caught:
        save(spark.range(1).selectExpr("'b' AS body"), str(tmp_path), topic="t")
    assert "no broker runs on this store" in str(caught.value)
    assert "slipstream broker -c" in str(caught.value)


def test_a_streams_epochs_are_written_once_also_with_an_older_checkpoint(
    spark: SparkSession, store: str, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"

    def run() -> None:
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(source))
        stream = lines.writeStream.format("rocketmq").option("path", store).option("topic", "lines")
        query = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(400)

    source.mkdir()
    for part in range(3):
        (source / f"{part}.txt").write_text("".join(f"{part} {number}\n" for number in range(200)))
    run()
    expected = Counter(f"{part} {number}".encode() for part in range(3) for number in range(200))
    assert Counter(body for (body,) in rows_of(spark, store, "lines", "body")) == expected
    for commit in (checkpoint / "commits").glob("*[12]*"):  # the driver died before it noted that these are done
        commit.unlink()
    run()
    assert Counter(body for (body,) in rows_of(spark, store, "lines", "body")) == expected
