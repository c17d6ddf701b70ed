"""README's blocks run as they are printed, one after the other, with real Spark and a broker to attach to."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine.producer import Producer
from slipstream import open_store
from tests.harness.conditions import await_that
from tests.harness.page_blocks import Session, blocks_of, commands_in_path
from tests.interop.sides import OurNameServer
from tools.common.local_broker import LocalBroker, free_port

pytestmark = pytest.mark.spark

PAGE = "../README.md"  # seen from docs/
SEGMENT = 1 << 20
SMALL = f"brokerIP1=127.0.0.1\\nmappedFileSizeCommitLog={SEGMENT}\\nmetricsPromExporterPort=0\\n"


def test_every_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    sizes = {"mappedFileSizeCommitLog": SEGMENT, "brokerName": "broker-a"}
    with (
        commands_in_path(monkeypatch, tmp_path),
        OurNameServer(tmp_path / "names", "4.9.7") as names,
        LocalBroker(tmp_path / "broker-a", namesrvAddr=names.address, **sizes) as master,
        Producer(str(master.store), timeout=60) as producer,
    ):
        producer.send("orders", b"of the broker that is there")
        home = tmp_path / "page"  # a session stops every broker of its directory
        home.mkdir()
        instead = {
            "slipstream init /tmp/first\n": f"slipstream init /tmp/first --port {free_port()}\n"
            f"printf '{SMALL}' >> /tmp/first/broker.properties\n",
            "-n 127.0.0.1:9876\n": f"-n {names.address}\nprintf '{SMALL}' >> /tmp/attached/broker.properties\n",
            "10931": free_port(),
            "slipstream produce": "slipstream produce --timeout 120",
            'keys="order-1")': 'keys="order-1", timeout=60)',
            'consume_from="first")': 'consume_from="first", timeout=60)',
            "/tmp/": f"{home}/",
        }
        with Session(PAGE, home, instead) as session:
            assert session.run({"": lambda _diagram: None}) == len(blocks_of(PAGE)) == 6
            assert session.names["spark"] is spark
            first, attached = (open_store(f"{home}/{name}/store") for name in ("first", "attached"))
            assert sum(1 for _message in first.messages("numbers")) == 1000
            assert [message.body for message in first.messages("orders")] == [b"one order"]
            await_that(lambda: [*attached.messages("orders")] != [], "the attached slave has the broker's message")
