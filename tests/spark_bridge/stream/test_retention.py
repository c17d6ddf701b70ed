"""A stream beside a writer while segments roll and retention deletes them: what is not read yet stays."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine.producer import Producer
from store.reading import extent
from tests.engine.keeping.test_retention_live import SEGMENT, SETTINGS, counters_of
from tests.spark_bridge.streams import Batches, Rows, await_rows, rows_of, start
from tools.common.local_broker import LocalBroker

pytestmark = pytest.mark.spark

EXPIRED_S = 3600 + 10
MESSAGES, DELETED = 3000, 20


class Writer(threading.Thread):
    """Appends messages and makes every full segment look old, until it is told to stop."""

    def __init__(self, store: Path) -> None:
        super().__init__()
        self.store, self.stopping = store, threading.Event()
        self.sent: Rows = []

    def run(self) -> None:
        with Producer(self.store, timeout=60.0) as producer:
            while not self.stopping.wait(0.01):
                for number in range(20):
                    body = b"%d " % len(self.sent) * 150
                    answer = producer.send("orders", body, queue_id=number % 2)
                    self.sent.append(("orders", answer.queue_id, answer.queue_offset, body))
                self._age()

    def _age(self) -> None:
        end = extent.readable_range(self.store).max_physical_offset
        at = time.time() - EXPIRED_S
        for path in (self.store / "commitlog").glob("[0-9]*"):
            if int(path.name) + SEGMENT <= end:
                try:
                    os.utime(path, (at, at))
                except FileNotFoundError:
                    continue  # it is deleted already


def test_no_message_is_deleted_before_it_is_read(spark: SparkSession, tmp_path: Path) -> None:
    batches: Batches = {}
    with LocalBroker(tmp_path / "m", **SETTINGS, brokerRole="ASYNC_MASTER") as broker:
        counters = counters_of(broker.store)
        query = start(
            spark, broker.store, tmp_path / "checkpoint", batches, continuous=True, maxOffsetsPerTrigger="1000"
        )
        with Producer(broker.store, timeout=60.0) as producer:
            first = producer.send("orders", b"first", queue_id=0)
        await_rows(query, lambda: len(rows_of(batches)) == 1)  # from here on it has its lease
        writer = Writer(broker.store)
        writer.start()
        try:
            await_rows(query, lambda: len(writer.sent) >= MESSAGES and counters.deleted_segments.read() >= DELETED)
        finally:
            writer.stopping.set()
            writer.join()
        sent = sorted([("orders", 0, first.queue_offset, b"first"), *writer.sent])
        await_rows(query, lambda: len(rows_of(batches)) >= len(sent))
        query.stop()
        assert counters.min_physical_offset.read() >= DELETED * SEGMENT
    assert rows_of(batches) == sent
