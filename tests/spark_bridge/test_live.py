"""Spark beside running brokers: a master and its slave, while messages keep coming, and what they leave behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents use

import spark_bridge
from engine.producer.producer import Producer, PutMessageStatus
from ipc import waiting
from ipc.counters import Counters
from store.files.pointer import COUNTERS_FILE
from store.reading import extent
from tests.spark_bridge.checks import Sent, assert_spark_reads
from tools.common.local_broker import LocalBroker

pytestmark = pytest.mark.spark

SIZES = {"mappedFileSizeCommitLog": 1 << 18, "maxMessageSize": 1 << 16, "slaveTimeout": 60_000,
         "haHousekeepingInterval": 120_000}  # fmt: skip
TIMEOUT_MS = 120_000
MESSAGES_MAX = 20_000


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[LocalBroker, LocalBroker]]:
    """A SYNC_MASTER and its slave."""
    with LocalBroker(tmp_path / "master", brokerRole="SYNC_MASTER", brokerId=0, **SIZES) as master:
        keys = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address, **SIZES}
        with LocalBroker(tmp_path / "slave", **keys) as slave:
            yield master, slave


def await_slave(master: LocalBroker) -> None:
    """Until the master counts its slave as in sync."""
    running = extent.require_running(master.store)
    counters = Counters.attach(running.region_directory / COUNTERS_FILE, writable=True)
    assert waiting.await_change(counters.cursor("in_sync_slaves"), 0, TIMEOUT_MS) == 1


def send(producer: Producer, number: int) -> tuple[PutMessageStatus, Sent]:
    topic, body = ("orders", "payments")[number % 2], bytes([65 + number % 26]) * (10 * number)
    result = producer.send(topic, body, tags="t", keys=f"k{number}")
    return result.status, Sent(topic, result.queue_id, result.queue_offset, body)


def test_what_a_master_acknowledged_is_read_from_it_from_its_slave_and_from_both_at_rest(
    spark: SparkSession, pair: tuple[LocalBroker, LocalBroker]
) -> None:
    master, slave = pair
    await_slave(master)
    with Producer(master.store, timeout=60.0) as producer:
        answers = [send(producer, number) for number in range(120)]
    assert {status for status, _ in answers} == {PutMessageStatus.PUT_OK}
    sent = [message for _, message in answers]
    for broker in (master, slave):
        assert_spark_reads(spark, str(broker.store), sent)
    for broker in (slave, master):
        broker.stop()
        assert_spark_reads(spark, str(broker.store), sent)


def test_a_read_beside_a_busy_producer_is_whole_up_to_where_it_was_planned(spark: SparkSession, tmp_path: Path) -> None:
    stopping = threading.Event()
    acknowledged = [0]

    def keep_sending(store: Path) -> None:
        with Producer(store, timeout=60.0) as producer:
            while not stopping.is_set() and acknowledged[0] < MESSAGES_MAX:
                producer.send_batch("orders", [b"x" * 40] * 50, wait=True)
                acknowledged[0] += 50

    with LocalBroker(tmp_path, brokerRole="ASYNC_MASTER", **SIZES) as master:
        thread = threading.Thread(target=keep_sending, args=(master.store,))
        thread.start()
        try:
            for options in ({}, {"topics": ["orders"]}, {"topics": ["orders"]}):
                least = acknowledged[0]
                frame = spark_bridge.read(spark, str(master.store), columns=["queueId", "queueOffset"], **options)
                rows = frame.groupBy("queueId").agg(
                    F.count("*").alias("n"),
                    F.countDistinct("queueOffset").alias("unlike"),
                    F.max("queueOffset").alias("last"),
                )
                found = rows.collect()
                assert sum(row.n for row in found) >= least
                assert all(row.n == row.unlike == row.last + 1 for row in found)
        finally:
            stopping.set()
            thread.join()
