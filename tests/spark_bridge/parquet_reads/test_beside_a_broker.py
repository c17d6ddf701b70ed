"""Reads beside a broker that makes side files while it takes messages: each row once, whatever is sealed by then."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import spark_bridge
from engine.producer import Producer
from spark_bridge.scanning import scan
from tests.harness.conditions import await_that
from tools.common.local_broker import LocalBroker

pytestmark = pytest.mark.spark

KEYS: dict[str, Any] = {
    "brokerRole": "ASYNC_MASTER", "columnarSidecar": True, "mappedFileSizeCommitLog": 1 << 18,
    "maxMessageSize": 1 << 16,
}  # fmt: skip
TOPICS = ("orders", "payments")
NAMES = ["topic", "queueId", "queueOffset", "physicalOffset"]
MESSAGES_MAX = 40_000


def test_reads_beside_a_producer_have_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    stopping, acknowledged = threading.Event(), dict.fromkeys(TOPICS, 0)

    def keep_sending(store: Path) -> None:
        with Producer(store, timeout=60.0) as producer:
            for number in itertools.count():
                topic = TOPICS[number % 2]
                producer.send_batch(topic, [b"x" * 200] * 20, wait=True)
                acknowledged[topic] += 20
                if stopping.is_set() or sum(acknowledged.values()) >= MESSAGES_MAX:
                    return

    with LocalBroker(tmp_path, **KEYS) as broker:
        thread = threading.Thread(target=keep_sending, args=(broker.store,))
        thread.start()
        try:
            await_that(lambda: scanned(broker.store, acknowledged)["fromSideFiles"] >= 2, "two side files")
            for topics in (None, ["orders"]):
                least = sum(acknowledged[topic] for topic in topics or TOPICS)
                frame = spark_bridge.read(spark, broker.store, columns=NAMES, topics=topics, columnarSidecar=True)
                rows = frame.toArrow()
                assert rows.num_rows >= least
                assert_each_once(rows)
                assert len(frame.inputFiles()) >= 2
            names = ["topic", "queueId", "queueOffset", "physicalOffset", "body"]
            some = spark_bridge.read(spark, broker.store, columns=names, where="queueOffset < 7", columnarSidecar=True)
            rows = some.toArrow()
            assert_each_once(rows)
            assert set(rows["body"].to_pylist()) == {b"x" * 200}
        finally:
            stopping.set()
            thread.join()


def scanned(store: Path, acknowledged: dict[str, int]) -> dict[str, int]:
    """Where a scan's rows came from; they are all that was acknowledged before, in the log's order."""
    least, figures = sum(acknowledged.values()), dict[str, int]()
    rows = scan(store, columns=NAMES, figures=figures).read_all()
    offsets = rows["physicalOffset"].to_pylist()
    assert rows.num_rows >= least
    assert offsets == sorted(offsets)
    assert_each_once(rows)
    return figures


def assert_each_once(rows: pa.Table) -> None:
    by_queue: dict[tuple[str, int], list[int]] = {}
    for row in rows.to_pylist():
        by_queue.setdefault((row["topic"], row["queueId"]), []).append(row["queueOffset"])
    for offsets in by_queue.values():
        assert sorted(offsets) == list(range(len(offsets)))
