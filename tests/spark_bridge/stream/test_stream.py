"""Streaming queries in a real Spark: limits, restarts, growth, loss, and the store changing hands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import spark_bridge
from engine.producer import Producer
from store.files.segment import file_name
from store.message.topics import is_system_topic
from tests.spark_bridge.stores import SmallStore, golden_lines, unpack_golden
from tests.spark_bridge.streams import Batches, Rows, await_rows, drain, rows_of, start
from tests.spark_bridge.test_live import SIZES, await_slave
from tools.common.local_broker import LocalBroker

pytestmark = pytest.mark.spark


def put(store: SmallStore, count: int, topics: tuple[str, ...] = ("orders", "payments")) -> Rows:
    """Messages in turn to two topics with two queues each, in the queues too."""
    first = len(store.records)
    for number in range(first, first + count):
        store.put(topics[number % len(topics)], b"%05d" % number * (number % 7), number // 2 % 2)
    store.dispatch()
    return sorted(
        (topic, queue, offset, b"%05d" % (first + number) * ((first + number) % 7))
        for number, (_, _, topic, queue, offset) in enumerate(store.records[first:])
    )


@pytest.mark.parametrize(("version", "name"), [("rocketmq-4.9.7", "master"), ("rocketmq-5.3.3", "features")])
def test_every_message_of_a_rocketmq_store_once(spark: SparkSession, tmp_path: Path, version: str, name: str) -> None:
    store = unpack_golden(version, name, tmp_path)
    (Path(store) / "abort").unlink(missing_ok=True)
    batches: Batches = {}
    drain(spark, store, tmp_path / "checkpoint", batches, maxOffsetsPerTrigger="500")
    by_batch_queue = {path.name for path in (Path(store) / "batchconsumequeue").glob("*")}
    lines = [
        line
        for line in golden_lines(version, name, "message")
        if not is_system_topic(line["topic"]) and line["topic"] not in by_batch_queue
    ]
    assert sorted(row[:3] for row in rows_of(batches)) == sorted(map(place, lines))
    assert max(map(len, batches.values())) <= 500
    tagged: Batches = {}
    drain(spark, store, tmp_path / "tagged", tagged, subExpression="BBBB")  # AaAa has the same hash
    assert sorted(row[:3] for row in rows_of(tagged)) == sorted(place(line) for line in lines if line["tags"] == "BBBB")


def place(line: dict[str, Any]) -> tuple[str, int, int]:
    return line["topic"], line["queueId"], line["queueOffset"]


def test_a_query_goes_on_where_its_checkpoint_says_with_new_topics_and_within_its_limits(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, batches = SmallStore(tmp_path / "store", 4096), Batches()
    sent = put(store, 100)
    drain(spark, store.root, tmp_path / "checkpoint", batches, maxOffsetsPerTrigger="30")
    assert [len(rows) for rows in batches.values()] == [30, 30, 30, 10]
    sent += put(store, 51, ("orders", "payments", "returns"))
    query = drain(spark, store.root, tmp_path / "checkpoint", batches, maxBytesPerTrigger="2000")
    assert rows_of(batches) == sorted(sent)
    sizes = {(topic, queue, offset): size for _, size, topic, queue, offset in store.records}
    by_bytes = [sum(sizes[row[:3]] for row in rows) for batch, rows in batches.items() if batch >= 4]
    assert len(by_bytes) > 2
    assert max(by_bytes) <= 2000
    drain(spark, store.root, tmp_path / "checkpoint", batches, minOffsetsPerTrigger="1000")
    assert rows_of(batches) == sorted(sent)
    (source,) = json.loads(query.lastProgress.json)["sources"]  # type: ignore[union-attr]
    assert spark_bridge.lag(query.lastProgress).rows_behind == 0
    assert "returns" in str(source["latestOffset"])


def test_a_query_goes_on_with_fewer_topics_and_knows_the_others_when_they_are_asked_for_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, batches = SmallStore(tmp_path / "store", 4096), Batches()
    sent = put(store, 40)
    drain(spark, store.root, tmp_path / "checkpoint", batches, subscribe="orders,payments")
    assert rows_of(batches) == sorted(sent)
    more = put(store, 40)
    drain(spark, store.root, tmp_path / "checkpoint", batches, subscribe="orders")
    fewer = [row for row in more if row[0] == "orders"]
    assert rows_of(batches) == sorted(sent + fewer)
    drain(spark, store.root, tmp_path / "checkpoint", batches, subscribe="orders,payments")
    assert rows_of(batches) == sorted(sent + more), "the other topic goes on where it was left"


def test_a_stream_starts_where_its_options_say(spark: SparkSession, tmp_path: Path) -> None:
    store = SmallStore(tmp_path / "store", 4096)
    before, batches, only, named = put(store, 40), Batches(), Batches(), Batches()
    drain(spark, store.root, tmp_path / "latest", batches, startingOffsets="latest")
    assert rows_of(batches) == []
    drain(spark, store.root, tmp_path / "topic", only, subscribe="payments")
    assert rows_of(only) == [row for row in before if row[0] == "payments"]
    drain(spark, store.root, tmp_path / "named", named, startingOffsets='{"orders":{"0":7,"1":-1}}')
    assert rows_of(named) == [row for row in before if row[:2] == ("orders", 0) and row[2] >= 7]
    after = put(store, 10)
    drain(spark, store.root, tmp_path / "latest", batches)
    assert rows_of(batches) == after


def test_deleted_messages_are_named_and_only_left_out_on_request(spark: SparkSession, tmp_path: Path) -> None:
    store, batches = SmallStore(tmp_path / "store", 4096), Batches()
    sent = put(store, 20)
    drain(spark, store.root, tmp_path / "checkpoint", batches)
    sent = sorted(sent + put(store, 200))
    (store.root / "commitlog" / file_name(0)).unlink()
    (store.root / "commitlog" / file_name(4096)).unlink()
    kept = {row[2:] for row in store.records if row[0] >= 8192}
    with pytest.raises(StreamingQueryException, match=r"messages 5 to \d+ were deleted"):
        drain(spark, store.root, tmp_path / "checkpoint", batches)
    drain(spark, store.root, tmp_path / "checkpoint", batches, failOnDataLoss="false")
    read = rows_of(batches)
    assert [row for row in read if row[2] >= 5] == [row for row in sent if row[:3] in kept and row[2] >= 5]
    assert [row for row in read if row[2] < 5] == [row for row in sent if row[2] < 5]
    sent = put(store, 10)
    drain(spark, store.root, tmp_path / "checkpoint", batches)
    assert len(rows_of(batches)) == len(read) + 10, "what was lost once is not lost again"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[LocalBroker, LocalBroker]]:
    """A SYNC_MASTER and its slave."""
    with LocalBroker(tmp_path / "master", brokerRole="SYNC_MASTER", brokerId=0, **SIZES) as master:
        keys = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address, **SIZES}
        with LocalBroker(tmp_path / "slave", **keys) as slave:
            yield master, slave


def send(broker: LocalBroker, topic: str, bodies: list[bytes]) -> Rows:
    with Producer(broker.store, timeout=60.0) as producer:
        answers = [(body, producer.send(topic, body)) for body in bodies]
    assert {answer.status.name for _, answer in answers} == {"PUT_OK"}
    return [(topic, answer.queue_id, answer.queue_offset, body) for body, answer in answers]


def test_a_live_query_follows_its_master_then_its_slave_then_the_slave_promoted(
    spark: SparkSession, tmp_path: Path, pair: tuple[LocalBroker, LocalBroker]
) -> None:
    master, slave = pair
    await_slave(master)
    batches: Batches = {}
    sent = send(master, "orders", [b"%d" % number * 1000 for number in range(300)])  # rolls several segments
    query = start(spark, master.store, tmp_path / "checkpoint", batches, continuous=True)
    await_rows(query, lambda: len(rows_of(batches)) == len(sent))
    sent += send(master, "payments", [b"new topic"] * 50)
    await_rows(query, lambda: len(rows_of(batches)) == len(sent))
    query.stop()
    sent += send(master, "orders", [b"while nobody read"] * 30)
    query = start(spark, slave.store, tmp_path / "checkpoint", batches, continuous=True)
    await_rows(query, lambda: len(rows_of(batches)) == len(sent))
    master.stop()
    slave.stop()
    await_rows(query, lambda: query.isActive)
    with LocalBroker(tmp_path / "slave", brokerRole="ASYNC_MASTER", brokerId=0, **SIZES) as promoted:
        sent += send(promoted, "orders", [b"of the new master"] * 40)
        await_rows(query, lambda: len(rows_of(batches)) == len(sent))
        query.stop()
    assert rows_of(batches) == sorted(sent)
