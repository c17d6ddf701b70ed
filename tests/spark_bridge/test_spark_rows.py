"""Rows in a real Spark session: a Kafka notebook's cells, decoded bodies, damage as a row, all of a 5.x store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents use

import spark_bridge
from store.message.topics import is_system_topic
from tests.spark_bridge.stores import Row, SmallStore, golden_lines, unpack_golden

pytestmark = pytest.mark.spark

GOLDEN = ("rocketmq-5.3.3", "features")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return unpack_golden(*GOLDEN, tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def messages() -> list[Row]:
    return [line for line in golden_lines(*GOLDEN, "message") if not is_system_topic(line["topic"])]


def test_a_kafka_notebook_runs_unchanged(spark: SparkSession, store: str, messages: list[Row]) -> None:
    frame = (
        spark.read.format("rocketmq")
        .option("schema", "kafka")
        .option("path", store)
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "featSql,featRetry")
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option("includeHeaders", "true")
        .load()
    )
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    cells = frame.selectExpr("CAST(key AS STRING)", "length(value) AS n", "topic", "partition", "offset", "headers")
    found = {(row.topic, row.partition, row.offset): row for row in cells.collect()}
    expected = [line for line in messages if line["topic"] in ("featSql", "featRetry")]
    assert len(found) == len(expected)
    for line in expected:
        row = found[line["topic"], line["queueId"], line["queueOffset"]]
        assert (row.key, row.n) == (line["keys"], line["bodyLength"])
        assert {header.key: bytes(header.value).decode() for header in row.headers} == line["properties"]
    ends = frame.groupBy("topic", "partition").agg(F.max("offset")).count()
    assert ends == len({(line["topic"], line["queueId"]) for line in expected})


def test_every_message_that_consumers_get_is_a_row(spark: SparkSession, store: str, messages: list[Row]) -> None:
    frame = spark_bridge.read(spark, store, columns=["topic", "body", "sysFlag"])
    counts = {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}
    expected: dict[str, int] = {}
    for line in messages:
        expected[line["topic"]] = expected.get(line["topic"], 0) + int(line["properties"].get("INNER_NUM", 1))
    assert counts == expected
    compressed = frame.filter("sysFlag & 1 = 1").select(F.length("body").alias("n")).collect()
    assert sorted(row.n for row in compressed) == sorted(line["bodyLength"] for line in messages if line["sysFlag"] & 1)


def test_json_bodies_are_decoded_into_typed_columns(spark: SparkSession, tmp_path: Path) -> None:
    made = SmallStore(tmp_path, 4096)
    for number in range(60):
        made.put("orders", json.dumps({"id": number, "who": {"name": f"n{number}"}}).encode() if number != 7 else b"{")
    reader = spark.read.format("rocketmq").option("path", str(tmp_path)).option("decode", "json")
    typed = "body struct<id: bigint, who: struct<name: string>>, _error string"
    frame = reader.schema(typed).option("mode", "permissive").load()
    total = frame.agg(F.sum("body.id"), F.count("body.who.name"), F.count("_error")).first()
    assert total is not None
    assert tuple(total) == (sum(range(60)) - 7, 59, 1)
    kafka = spark_bridge.read(
        spark, tmp_path, decode="json", valueSchema="id bigint", mode="permissive", schema="kafka", includeHeaders=True
    )
    assert kafka.columns[-2:] == ["headers", "_error"]
    assert kafka.filter("value.id > 50").count() == 9
    with pytest.raises((AnalysisException, PythonException), match="its body as json"):
        spark_bridge.read(spark, tmp_path, decode="json", columns=["body"]).collect()


def test_damage_is_a_row_that_no_filter_of_the_plan_drops(spark: SparkSession, tmp_path: Path) -> None:
    made = SmallStore(tmp_path, 4096)
    for number in range(60):
        made.put(("orders", "payments")[number % 2], bytes([number]) * number)
    (damaged,) = [offset for offset in made.offsets if offset < 4096][5:6]
    segment = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(segment.read_bytes())
    content[damaged + 4] ^= 0xFF
    segment.write_bytes(content)
    columns, options = ["topic", "physicalOffset", "_error"], {"mode": "permissive", "splitBytes": 4096}
    frame = spark_bridge.read(spark, tmp_path, columns=columns, **options)
    (told,) = frame.filter("_error IS NOT NULL").collect()
    assert told.physicalOffset == damaged
    assert told._error.startswith(f"CORRUPT_RECORD: {segment}: record at offset {damaged}")
    assert frame.count() == 60
    orders = spark_bridge.read(spark, tmp_path, columns=columns, topics=["orders"], **options).collect()
    assert sorted(row.physicalOffset for row in orders) == sorted({*made.offsets[::2], damaged})
    with pytest.raises((AnalysisException, PythonException), match=f"offset {damaged}"):
        spark_bridge.read(spark, tmp_path, columns=["topic"]).count()
    with pytest.raises((AnalysisException, PythonException), match="add '_error string'"):
        spark_bridge.read(spark, tmp_path, columns=["topic"], mode="permissive").count()
