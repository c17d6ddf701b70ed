"""Our name server and our administrator's commands with RocketMQ's own brokers, client and mqadmin, 4.9.7 and 5.3.3."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.conditions import await_that
from tests.interop import needs, rocketmq
from tests.interop.rocketmq import MqAdmin, RealClient, RocketMQBroker
from tests.interop.sides import CLI, OurNameServer


@pytest.fixture(params=["4.9.7", "5.3.3"])
def name_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OurNameServer]:
    needs.need([request.param])
    server = OurNameServer(tmp_path / "namesrv", request.param, "--order-message-enable")
    yield server
    server.stop()


def admin(address: str, *arguments: str, code: int = 0) -> Any:
    """What `slipstream admin` says, as JSON."""
    command, *options = arguments
    environment = {**os.environ, "NAMESRV_ADDR": address}
    done = subprocess.run(
        [*CLI, "admin", command, *options, "-o", "json", "--timeout", "120"],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if code == 0 else done.stderr


@pytest.mark.interop
def test_real_brokers_clients_and_mqadmin_use_it(name_server: OurNameServer, tmp_path: Path) -> None:
    version, at = name_server.version, name_server.address
    with (
        RocketMQBroker(tmp_path / "broker", version, namesrvAddr=at, timerWheelEnable="true") as broker,
        MqAdmin(tmp_path / "mqadmin", name_server) as mqadmin,
    ):
        address = f"127.0.0.1:{broker.port}"
        row = first_row_with_figures(at)
        assert (row["Cluster Name"], row["Broker Name"], row["BID"], row["Addr"]) == (
            "DefaultCluster", "broker-a", 0, address
        )  # fmt: skip
        assert row["Version"] == f"V{version.replace('.', '_')}"
        listed = mqadmin.said("clusterList")
        assert address in listed and row["Version"] in listed
        check_topics(at, address, mqadmin)
        check_settings(at, version, address)
        with RealClient(tmp_path / "client", name_server) as client:
            assert len(client.ask("produce", topic="mine", first=0, count=20)) == 20
            await_that(lambda: consumed(client, "mine") == 20, "all are in their queues, and read")
    await_that(lambda: not admin(at, "clusterList"), "the name server hears that the broker has gone")
    assert "no cluster" in admin(at, "clusterList", "-c", "DefaultCluster", code=2)


def first_row_with_figures(at: str) -> dict[str, Any]:
    """A broker has none in its first second."""

    def seen() -> dict[str, Any] | None:
        (row,) = admin(at, "clusterList")
        return dict(row) if row["Version"] else None

    found = await_that(seen, "the broker gives figures")
    assert found is not None
    return found


def consumed(client: RealClient, topic: str) -> int:
    """How many messages are read now: a broker's queues are built behind its answers."""
    return len([line for line in client.ask("consume", topic=topic) if "msgId" in line])


def check_topics(at: str, address: str, mqadmin: MqAdmin) -> None:
    admin(at, "updateTopic", "-c", "DefaultCluster", "-t", "mine", "-r", "3", "-w", "2", "-o", "true")
    admin(at, "updateTopic", "-b", address, "-t", "short-lived")
    route = admin(at, "topicRoute", "-t", "mine")
    assert (route["queueDatas"][0]["readQueueNums"], route["queueDatas"][0]["writeQueueNums"]) == (3, 2)
    assert route["orderTopicConf"] == "broker-a:2"
    theirs = mqadmin.said("topicRoute", "-t", "mine")
    assert json.loads(theirs[theirs.index("{") : theirs.rindex("}") + 1].replace("0:", '"0":', 1)) == route
    assert {"mine", "short-lived", "TBW102"} <= set(admin(at, "topicList"))
    admin(at, "deleteTopic", "-t", "short-lived", "-c", "DefaultCluster")
    assert "short-lived" not in admin(at, "topicList")
    assert {row["Topic"] for row in admin(at, "topicList", "-c")} == set(admin(at, "topicList"))
    assert "No topic route info" in admin(at, "topicRoute", "-t", "short-lived", code=4)


def check_settings(at: str, version: str, address: str) -> None:
    admin(at, "updateBrokerConfig", "-b", address, "-k", "slaveReadEnable", "-v", "true")
    assert admin(at, "getBrokerConfig", "-c", "DefaultCluster")["slaveReadEnable"] == "true"
    figures = admin(at, "brokerStatus", "-b", address)
    assert figures["brokerVersionDesc"] == f"V{version.replace('.', '_')}"
    if rocketmq.is_five(version):
        assert admin(at, "haStatus", "-b", address)["master"] is True
    else:
        assert "answered with code 3" in admin(at, "haStatus", "-b", address, code=4)
