"""A real Spark session with the options of batch reads: several stores, tags, keys, times, tables, a pruned read."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents use

import spark_bridge
from ipc import waiting
from ipc.counters import Counters
from ipc.process import start_time
from store.files.directory import StoreDirectory
from store.files.pointer import COUNTERS_FILE
from store.message.topics import is_system_topic
from store.upkeep import leases
from tests.spark_bridge.stores import Row, SmallStore, golden_lines, unpack_golden

pytestmark = pytest.mark.spark

GOLDEN = ("rocketmq-5.3.3", "master")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return unpack_golden(*GOLDEN, tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def messages() -> list[Row]:
    return [line for line in golden_lines(*GOLDEN, "message") if not is_system_topic(line["topic"])]


def test_two_brokers_of_unlike_versions_are_one_table_by_list_and_by_glob(spark, store, messages, tmp_path):
    other = Path(unpack_golden("rocketmq-4.9.7", "features", tmp_path / "b"))
    own = Path(shutil.copytree(store, tmp_path / "a" / "store"))
    features = golden_lines("rocketmq-4.9.7", "features", "message")
    expected = {"broker-alpha": len(messages), "broker-feat": len(features)}
    reader = spark.read.format("rocketmq").schema("brokerName string")
    for frame in (reader.load([str(own), str(other)]), reader.load(str(tmp_path / "*" / "store"))):
        assert {row.brokerName: row["count"] for row in frame.groupBy("brokerName").count().collect()} == expected
    only = spark_bridge.read(spark, [own, other], columns=["topic"], where="brokerName = 'broker-feat'")
    assert only.columns == ["topic"]
    assert Counter(row.topic for row in only.collect()) == Counter(line["topic"] for line in features)


def test_a_pruned_read_with_a_condition_on_tags_and_more(spark, store, messages):
    frame = spark_bridge.read(spark, store, columns=["queueOffset"], where="tags = 'BBBB' and topic like 'alpha%'")
    expected = [ln["queueOffset"] for ln in messages if ln["tags"] == "BBBB" and ln["topic"].startswith("alpha")]
    assert sorted(row.queueOffset for row in frame.collect()) == sorted(expected)
    column = spark_bridge.read(spark, store, columns=["topic"], where=F.col("queueId") == 3)
    assert column.count() == sum(line["queueId"] == 3 for line in messages)


def test_tags_keys_and_times_in_kafkas_and_rocketmqs_words(spark, store, messages):
    def read(**options: str) -> list[int]:
        reader = spark.read.format("rocketmq").schema("physicalOffset bigint").option("path", store)
        return sorted(row.physicalOffset for row in reader.options(**options).load().collect())

    tagged = [line["physicalOffset"] for line in messages if line["tags"] in ("BBBB", "AaAa")]
    assert read(subExpression="BBBB || AaAa") == tagged
    line = messages[len(messages) // 2]
    at, key = line["storeTimestamp"], line["properties"]["UNIQ_KEY"]
    assert line["physicalOffset"] in read(keys=key)
    kafka = {"kafka.bootstrap.servers": "ignored:9092", "groupIdPrefix": "g", "kafka.security.protocol": "PLAINTEXT"}
    later = [ln["physicalOffset"] for ln in messages if ln["storeTimestamp"] >= at and ln["topic"] == line["topic"]]
    assert read(subscribe=line["topic"], startingTimestamp=str(at), **kafka) == later


def test_metadata_tables_count_as_the_rows_do(spark, store, messages):
    queues = spark.read.format("rocketmq").option("path", store).option("table", "queues").load()
    found = {(row.topic, row.queueId): (row["count"], row.minOffset) for row in queues.collect()}
    expected = Counter((line["topic"], line["queueId"]) for line in messages)
    assert {key: count for key, (count, _) in found.items() if count} == expected
    for table in ("topics", "segments", "replicas", "consumer_groups"):
        assert spark.read.format("rocketmq").option("path", store).option("table", table).load().count() > 0
    pruned = spark.read.format("rocketmq").schema("count bigint").option("path", store).option("table", "queues")
    assert pruned.load().agg(F.sum("count")).first()[0] == len(messages)  # type: ignore[index]
    with pytest.raises((AnalysisException, PythonException), match="did you mean 'queues'"):
        spark.read.format("rocketmq").option("path", store).option("table", "queus").load()


def test_a_query_holds_the_log_beside_a_broker_by_the_life_of_its_driver(spark, tmp_path):
    made = SmallStore(tmp_path / "store", 2048)
    for number in range(40):
        made.put("orders", b"x" * 40, queue_id=number % 2)
    made.dispatch()
    counters = Counters.create(tmp_path / COUNTERS_FILE, 8)
    ends = {"min_physical_offset": 0, "max_physical_offset": made.end, "reput_from_offset": made.end}
    for label, value in ends.items():
        waiting.publish(counters.allocate(label, kind="cursor", owner="test"), value)
    pointer = {"pid": os.getpid(), "start_time": start_time(os.getpid()), "settings": {}}
    StoreDirectory(made.root).write_pointer({**pointer, "region_directory": str(tmp_path)})
    reader = spark.read.format("rocketmq").schema("physicalOffset bigint").option("path", str(made.root))
    frame = reader.option("startingOffsets", '{"orders":{"0":12,"1":15}}').load()
    found = sorted(row.physicalOffset for row in frame.collect())
    assert leases.held_from(made.root, 0) == found[0]
    owners = {path.read_text() for path in StoreDirectory(made.root).leases.iterdir()}
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    assert any(f'"pid": {jvm},' in owner for owner in owners), "the driver's own lease goes with the JVM"
