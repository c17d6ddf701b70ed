"""Spark streams: how long a micro-batch takes beside a producer of 1,000 messages/s, and how fast a backlog is read.

A batch's latency is Spark's own triggerExecution: planning, both writes to the checkpoint, the tasks. The first
batches of a query are not counted: they load classes. The backlog's rows a second count the whole query, from `start()`
until it has ended, with its Python processes and its checkpoint.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_bridge
from engine.producer import Producer
from ipc.module_names import named
from spark_bridge import java_home
from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results
from tools.dev.bench.bed.log_store import LogWriter
from tools.dev.bench.bed.programs import program

RATE, TICK_S = 1000, 0.01
BODY_BYTES = (100, 300)
SEGMENT_BYTES, SEGMENTS = 256 << 20, 3
WATCH_SECONDS = 30
WARM_BATCHES = 30
LATENCY_GOAL_MS, ROWS_GOAL = 250.0, 500_000.0
COLUMNS = "queueId int, queueOffset bigint, body binary"
END_S = 600


def produce(store: str) -> None:
    """Send RATE messages a second until the process is ended."""
    body = b"x" * 200
    with Producer(store, timeout=20.0) as producer:
        print("ready", flush=True)
        began, sent = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - began) * RATE)
            for _ in range(due - sent):
                producer.send(f"orders-{sent % 4}", body)
                sent += 1
            time.sleep(TICK_S)


def _start(spark: SparkSession, store: Path, checkpoint: Path, **trigger: Any) -> StreamingQuery:
    frame = spark.readStream.format("rocketmq").schema(COLUMNS).option("path", str(store)).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start()


def _batches(query: StreamingQuery) -> list[Any]:
    return [progress for progress in query.recentProgress if progress["numInputRows"] > 0]


def batch_latencies(spark: SparkSession, scratch: Path) -> tuple[list[Any], float]:
    """The progress of every warm batch, and the rows a second of them."""
    command = [sys.executable, "-m", named("tools.dev.bench.works.reads.spark_stream")]
    with LocalBroker(scratch / "live", brokerRole="ASYNC_MASTER") as broker, program([*command, str(broker.store)]):
        query = _start(spark, broker.store, scratch / "live-checkpoint", processingTime="0 seconds")
        try:
            deadline = time.monotonic() + END_S
            while len(_batches(query)) < WARM_BATCHES and time.monotonic() < deadline:
                query.awaitTermination(1)
            warm = _batches(query)[-1]["batchId"]
            began = time.monotonic()
            query.awaitTermination(WATCH_SECONDS)
            took = time.monotonic() - began
            batches = [progress for progress in _batches(query) if progress["batchId"] > warm]
        finally:
            query.stop()
    return batches, sum(progress["numInputRows"] for progress in batches) / took


def backlog_seconds(spark: SparkSession, store: Path, scratch: Path, number: int, rows: int) -> float:
    """Return how long one query takes for the whole store. Its rows are counted."""
    began = time.perf_counter()
    query = _start(spark, store, scratch / f"backlog-checkpoint-{number}", availableNow=True)
    if not query.awaitTermination(END_S):
        raise click.ClickException(f"the query did not end in {END_S} s")
    took = time.perf_counter() - began
    count = sum(progress["numInputRows"] for progress in query.recentProgress)
    if count != rows:
        raise click.ClickException(f"{count} rows of {rows}")
    return took


def measure(of: Asked, to: Results) -> None:
    """Measure both in a directory of their own, which is removed afterwards."""
    java_home.ensure()
    with tempfile.TemporaryDirectory(dir=of.scratch) as name:
        scratch = Path(name)
        conf = {"spark.driver.memory": "2g", "spark.sql.streaming.numRecentProgressUpdates": "10000"}
        spark = spark_bridge.session("slipstream stream bench", **conf)
        try:
            store = scratch / "backlog"
            rows = LogWriter(store, SEGMENT_BYTES, BODY_BYTES).write(SEGMENTS)
            backlog_seconds(spark, store, scratch, 0, rows)
            took = [backlog_seconds(spark, store, scratch, number, rows) for number in range(1, of.repeat + 1)]
            of.console.print(f"{rows:,} messages, AvailableNow: " + ", ".join(f"{one:.2f} s" for one in took))
            batches, rate = batch_latencies(spark, scratch)
        finally:
            spark.stop()
    _report(batches, rate, [rows / one for one in took], to)


def _report(batches: list[Any], rate: float, rates: list[float], to: Results) -> None:
    if len(batches) < WARM_BATCHES:
        raise click.ClickException(f"only {len(batches)} warm batches: the machine is too busy for a median")
    ms = sorted(float(progress["durationMs"]["triggerExecution"]) for progress in batches)
    phases = ("addBatch", "walCommit", "commitOffsets", "latestOffset", "queryPlanning")
    parts = {name: statistics.median(progress["durationMs"].get(name, 0) for progress in batches) for name in phases}
    shares = ", ".join(f"{name} {value:.0f}" for name, value in parts.items())
    note = f"{len(ms)} batches, {rate:,.0f} rows/s; {shares}"
    middle, middle_rate = statistics.median(ms), statistics.median(rates)
    spread = f"{min(rates):,.0f} / {middle_rate:,.0f} / {max(rates):,.0f} rows/s, whole query"
    to.figure("stream micro-batch", "slipstream", middle, "ms", ms[int(len(ms) * 0.99)], note)
    to.figure("stream AvailableNow", "slipstream", middle_rate, "rows/s", None, spread)
    to.at_most("stream micro-batch", middle, LATENCY_GOAL_MS, "250 ms")
    to.at_least("stream AvailableNow", middle_rate, ROWS_GOAL, "500,000 rows/s")


if __name__ == "__main__":
    produce(sys.argv[1])
