"""The guide's blocks on snapshots and consumer groups, run on a log that grows, and what they promise."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from engine.producer import Producer
from tests.harness.command_line import run
from tests.harness.conditions import await_that
from tests.harness.page_blocks import BLOCK, ROOT
from tests.spark_bridge.streams import TIMEOUT_S
from tools.common.local_broker import LocalBroker
from tools.show.clients import overview

pytestmark = pytest.mark.spark

SIZES = {"mappedFileSizeCommitLog": 1 << 18, "maxMessageSize": 1 << 16}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path / "north", brokerRole="ASYNC_MASTER", **SIZES) as one:
        put(one, 30)
        yield one


def put(broker: LocalBroker, count: int) -> None:
    with Producer(broker.store, timeout=60.0) as producer:
        for number in range(count):
            producer.send("orders", b"an order", keys=f"k{number}")
            if number % 3:
                producer.send("payments", b"a payment", keys=f"k{number}")


def blocks(heading: str) -> list[str]:
    """Those of a section of the guide."""
    text = (ROOT / "spark_bridge" / "USAGE.md").read_text()
    section = text.split(f"{heading}\n", 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]
    return [match[2] for match in BLOCK.findall(section)]


def test_two_reads_and_a_join_agree_while_the_log_grows(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    typed, python = blocks("## Snapshots: reads that agree")
    words = shlex.split(typed.replace("STORE", str(broker.store), 1), comments=True)
    assert run(*words[1:]).exit_code == 0
    put(broker, 60)
    names: dict[str, Any] = {"spark": spark, "STORE": str(broker.store)}
    exec(python, names)  # the guide's own words
    first = spark.read.format("rocketmq").options(**names["at"]).load().groupBy("topic").count().collect()
    put(broker, 40)
    again = spark.read.format("rocketmq").options(**names["at"]).load().groupBy("topic").count().collect()
    assert (
        {row["topic"]: row["count"] for row in first}
        == {"orders": 30, "payments": 20}
        == {row["topic"]: row["count"] for row in again}
    )
    assert names["orders"].join(names["paid"], "keys", "left_anti").count() == 10
    rows: list[int] = []
    query = names["since"].select("topic").writeStream.foreachBatch(lambda frame, _n: rows.append(frame.count()))
    query = query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    assert query.awaitTermination(TIMEOUT_S)
    whole = spark.read.format("rocketmq").option("path", str(broker.store)).option("columns", "topic").load().count()
    assert sum(rows) == whole - 50, "the batch and the stream have each row once"
    table = f"OPTIONS (path '{broker.store}', snapshot 'nightly', columns 'topic')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW then USING rocketmq {table}")
    assert spark.sql("SELECT count(*) AS n FROM then").first()["n"] == 50
    assert run("snapshot", "--drop", "nightly", broker.store).exit_code == 0
    with pytest.raises(Exception, match=r"SNAPSHOT_UNKNOWN: .*no snapshot 'nightly'; known: none"):
        spark.read.format("rocketmq").options(**names["at"]).load().count()


def test_the_lag_of_a_query_is_shown(spark: SparkSession, broker: LocalBroker, tmp_path: Path) -> None:
    (python,) = blocks("### Its lag, as of any consumer group")
    names: dict[str, Any] = {"spark": spark, "STORE": str(broker.store), "CHECKPOINT": str(tmp_path / "checkpoint")}
    exec(python, names)
    query = names["query"]

    def is_told() -> bool:
        assert query.exception() is None
        groups = overview(str(broker.store), "orders-report")["groups"]
        return bool(groups) and sum(queue["offset"] for queue in groups[0]["queues"]) == 30

    try:
        await_that(is_told, "the group is where the query is", TIMEOUT_S)
    finally:
        query.stop()
    assert "orders-report" in run("groups", broker.store).stdout
