"""Our brokers in a cluster with RocketMQ's own name server, slaves, masters and mqadmin, 4.9.7 and 5.3.3.

A real slave takes our log and our tables; ours takes a real master's, whose address only the name server told it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.harness.audit import messages_of
from tests.harness.conditions import await_that
from tests.harness.ha_node import wait_until
from tests.interop import needs, rocketmq
from tests.interop.remoting import Client
from tests.interop.rocketmq import MqAdmin, NameServer, RocketMQBroker
from tests.interop.sides import file_of
from tests.interop.test_name_server import admin
from tools.common.local_broker import LocalBroker

SEGMENT = 256 * 1024
SIZES = {"mappedFileSizeCommitLog": SEGMENT, "brokerName": "broker-a"}
OURS = {**SIZES, "mappedFileSizeConsumeQueue": 20_000, "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536}
SECONDS = 180


@pytest.fixture(params=["4.9.7", "5.3.3"])
def version(request: pytest.FixtureRequest) -> str:
    needs.need([request.param])
    return str(request.param)


def counters_of(broker: LocalBroker) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)


def wait_for(condition: Callable[[], bool]) -> None:
    """Ask again and again what another process writes into files; fails at the deadline."""
    await_that(condition, "what is awaited here", SECONDS, pause=0.05)


def has_topic(store: Path, topic: str) -> Callable[[], bool]:
    return lambda: topic in file_of(store, "topics.json").get("topicConfigTable", {})


@pytest.mark.interop
def test_a_real_slave_takes_our_log_and_our_tables(version: str, tmp_path: Path) -> None:
    compat = "5" if rocketmq.is_five(version) else "4.9"
    with (
        NameServer(tmp_path / "names", version) as names,
        LocalBroker(tmp_path / "m", namesrvAddr=names.address, compat=compat, **OURS) as ours,
        Producer(str(ours.store), timeout=60.0) as producer,
        MqAdmin(tmp_path / "admin", names) as mqadmin,
    ):
        for number in range(300):
            producer.send("mine", f"body {number}" * 20, keys=f"k{number}", queue_id=number % 4)
        made = mqadmin.said("updateTopic", "-b", f"127.0.0.1:{ours.port}", "-t", "made")
        assert made.startswith("create topic")

        def is_listed() -> bool:
            listed = mqadmin.said("clusterList")
            return f"127.0.0.1:{ours.port}" in listed and f"V{version.replace('.', '_')}" in listed

        await_that(is_listed, "the name server lists our broker", SECONDS)
        end, log = counters_of(ours).max_physical_offset.read(), ours.store / "commitlog"
        settings = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": names.address, **SIZES}
        with RocketMQBroker(tmp_path / "s", version, **settings) as slave:

            def takes_tables() -> bool:
                slave.synchronize()  # by its timer it would once a minute, but has no master before it is registered
                return has_topic(slave.store, "made")() and has_topic(slave.store, "mine")()

            await_that(takes_tables, "the slave has its master's topics", pause=0.5)
            with Client(slave.port) as client:
                wait_for(lambda: client.request(28)["code"] == 0)
            wait_until(counters_of(ours).ha[0].slave_ack_offset, lambda ack: ack >= end, SECONDS * 1000)
            wait_for(lambda: {row["BID"] for row in admin(names.address, "clusterList")} == {0, 1})
        first = end - end % SEGMENT  # a new slave begins with the master's last segment
        written = b"".join(path.read_bytes() for path in sorted(log.iterdir()))
        assert slave.log_bytes(first, end, SEGMENT) == written[first:end]
        ours_said, theirs = file_of(ours.store, "topics.json"), file_of(slave.store, "topics.json")
        assert theirs["topicConfigTable"]["made"] == ours_said["topicConfigTable"]["made"]


@pytest.mark.interop
def test_our_slave_finds_a_real_master_by_its_name_server_and_takes_its_tables(version: str, tmp_path: Path) -> None:
    compat = "5" if rocketmq.is_five(version) else "4.9"
    with (
        NameServer(tmp_path / "names", version) as names,
        RocketMQBroker(tmp_path / "m", version, brokerRole="ASYNC_MASTER", namesrvAddr=names.address, **SIZES) as real,
        Client(real.port) as client,
    ):
        ends = [client.send("theirs", number % 4, b"x" * 300, f"KEYS\x01k{number}\x02") for number in range(200)]
        client.request(200, body=json.dumps({"groupName": "g"}).encode())
        client.request(15, {"consumerGroup": "g", "topic": "theirs", "queueId": 2, "commitOffset": 7})
        settings = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": names.address, "compat": compat, **OURS}
        with LocalBroker(tmp_path / "s", **settings) as slave:
            check_slave(slave, ends[-1])
            both = {0: f"127.0.0.1:{real.port}", 1: f"127.0.0.1:{slave.port}"}
            wait_for(lambda: {row["BID"]: row["Addr"] for row in admin(names.address, "clusterList")} == both)


def check_slave(slave: LocalBroker, last_offset: int) -> None:
    counters = counters_of(slave)
    wait_until(counters.max_physical_offset, lambda reached: reached > last_offset, SECONDS * 1000)
    wait_for(has_topic(slave.store, "theirs"))
    wait_for(lambda: file_of(slave.store, "consumerOffset.json").get("offsetTable", {}).get("theirs@g") == {2: 7})
    wait_for(lambda: "g" in file_of(slave.store, "subscriptionGroup.json").get("subscriptionGroupTable", {}))
    found = messages_of(slave.store, counters.max_physical_offset.read())
    assert len([message for message in found if message.topic == "theirs"]) == 200
