"""The tutorial that attaches to a running RocketMQ: every block runs, at an unmodified RocketMQ, with real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_bridge.options.read import parse_options
from spark_bridge.plan.planner import plan_read
from store.reading.extent import running
from tests.harness.conditions import await_that
from tests.harness.page_blocks import Session, commands_in_path
from tests.interop import needs
from tests.interop.rocketmq import NameServer, RocketMQBroker
from tests.spark_bridge.stores import read_rows
from tools.common.local_broker import free_port

pytestmark = [pytest.mark.spark, pytest.mark.interop]

SEGMENT = 1 << 20
SENT = 20
PYTHON = "topics = read(spark, STORE"  # the page's first read


def await_orders(store: str) -> None:
    """Until the slave has them all in its log: it is in TRANSFER before."""
    options = parse_options({"path": store, "topic": "orders", "allowMissingTopics": "true"})
    await_that(lambda: len(read_rows(plan_read(options), ["queueOffset"])) == SENT, "the slave has all orders")


def test_every_block_runs_at_an_unmodified_rocketmq(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    needs.need()
    sizes = {"mappedFileSizeCommitLog": SEGMENT, "brokerRole": "ASYNC_MASTER"}
    with (
        commands_in_path(monkeypatch, tmp_path),
        NameServer(tmp_path / "names") as names,
        RocketMQBroker(tmp_path / "theirs", namesrvAddr=names.address, **sizes) as master,
    ):
        instead = {
            "127.0.0.1:9876": names.address,
            "10911": master.port,
            "10931": free_port(),
            1 << 30: SEGMENT,
            PYTHON: f"await_orders(STORE)\n{PYTHON}",
        }
        with Session("tutorials/attach.md", tmp_path, {str(text): other for text, other in instead.items()}) as session:
            session.shell(f"seq {SENT} | slipstream send --topic orders --tag new -n {names.address} > /dev/null")
            session.names["await_orders"] = await_orders
            session.run()
            assert session.names["spark"] is spark
            counted = {row.topic: row["count(1)"] for row in session.names["counted"]}
            assert counted["orders"] == SENT
            assert {bytes(row.body) for row in session.names["newest"]} <= {b"%d" % n for n in range(1, SENT + 1)}
            await_that(lambda: running(tmp_path / "attached" / "store") is None, "the slave has stopped")
