"""Spark at a slave of ours that was attached to a real RocketMQ with a history of several segments: it counts all."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_bridge
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.harness.ha_node import wait_until
from tests.interop import needs
from tests.interop.remoting import Client
from tests.interop.rocketmq import RocketMQBroker
from tools.common.local_broker import LocalBroker

pytestmark = [pytest.mark.spark, pytest.mark.interop]

SEGMENT, SEGMENTS = 64 * 1024, 5
SIZES = {"mappedFileSizeCommitLog": SEGMENT}


def test_spark_counts_the_history_of_a_real_master_from_its_first_message_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    needs.need()
    with RocketMQBroker(tmp_path / "m", brokerRole="ASYNC_MASTER", **SIZES) as master:
        sent = last = 0
        with Client(master.port) as client:
            while last < SEGMENTS * SEGMENT:
                last = client.send("history", sent % 4, b"x" * 1500)
                sent += 1
        keys = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": f"127.0.0.1:{master.ha_port}", **SIZES}
        with LocalBroker(tmp_path / "s", maxMessageSize=16_384, **keys) as slave:
            counters = BrokerCounters.attach(extent.require_running(slave.store).region_directory, writable=True)
            wait_until(counters.reput_from_offset, lambda reached: reached > last, 180_000)
            rows = spark_bridge.read(spark, str(slave.store), columns=["topic", "queueOffset"])
            rows = rows.where("topic = 'history'")
            assert rows.count() == sent
            assert rows.agg({"queueOffset": "min"}).collect()[0][0] == 0
