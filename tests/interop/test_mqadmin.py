"""RocketMQ's own mqadmin, 4.9.7 and 5.3.3, at our name server and our brokers: every command that we serve."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.harness.conditions import await_that
from tests.harness.ha_node import wait_until
from tests.interop import needs, rocketmq
from tests.interop.rocketmq import MqAdmin
from tests.interop.sides import OurNameServer
from tools.common.local_broker import LocalBroker

SIZES = {"mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536, "brokerName": "a"}
SECONDS = 180


@pytest.mark.interop
@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_mqadmins_commands_work_at_a_slipstream_cluster(version: str, tmp_path: Path) -> None:
    needs.need([version])
    five = rocketmq.is_five(version)

    with OurNameServer(tmp_path / "names", version) as names, MqAdmin(tmp_path / "mqadmin", names) as mqadmin:
        said = mqadmin.said
        both = {**SIZES, "namesrvAddr": names.address, "compat": "5" if five else "4.9"}
        with (
            LocalBroker(tmp_path / "m", **both) as master,
            LocalBroker(tmp_path / "s", brokerRole="SLAVE", brokerId=1, **both) as slave,
            Producer(str(master.store), timeout=60.0) as producer,
        ):
            producer.send("mine", b"body")
            counters = BrokerCounters.attach(extent.require_running(master.store).region_directory, writable=True)
            wait_until(counters.ha[0].slave_ack_offset, lambda ack: ack > 0, SECONDS * 1000)
            at = f"127.0.0.1:{master.port}"
            both = at, f"127.0.0.1:{slave.port}"
            await_words(both, partial(said, "clusterList"))
            assert "commitLogMaxOffset" in said("brokerStatus", "-b", at)
            assert "create topic to" in said("updateTopic", "-b", at, "-t", "made", "-r", "3", "-w", "3")
            await_that(lambda: {"mine", "made"} <= set(said("topicList").split()), "the name server knows both topics")
            await_that(lambda: at in said("topicRoute", "-t", "made"), "and where they are")
            assert '"writeQueueNums":3' in said("topicRoute", "-t", "made").replace(" ", "")
            check_settings(said, at)
            assert "success" in said("exportConfigs", "-c", "DefaultCluster", "-f", str(tmp_path / "export"))
            if five:
                await_words(("#InSyncSlaveNum\t1", "OK"), partial(said, "haStatus", "-b", at))
            assert "delete topic" in said("deleteTopic", "-c", "DefaultCluster", "-t", "made")
            await_that(lambda: "made" not in said("topicList").split(), "the name server has forgotten it")


def await_words(words: tuple[str, ...], said: Callable[[], str]) -> None:
    """Until what is said has all of them."""

    def are_there() -> bool:
        text = said()
        return all(word in text for word in words)

    await_that(are_there, f"it says {words}", SECONDS)


def check_settings(said: Callable[..., str], at: str) -> None:
    """What may change is changed and shown; a path is neither changed nor answered with success."""
    assert "update broker config success" in said("updateBrokerConfig", "-b", at, "-k", "brokerPermission", "-v", "4")
    shown = dict(line.split("=", 1) for line in said("getBrokerConfig", "-b", at).splitlines() if "=" in line)
    shown = {key.strip(): value.strip() for key, value in shown.items()}
    assert shown["brokerPermission"] == "4"
    before = shown["storePathRootDir"]
    refused = said("updateBrokerConfig", "-b", at, "-k", "storePathRootDir", "-v", "elsewhere")
    assert "success" not in refused
    assert f"{before}" in said("getBrokerConfig", "-b", at)
