"""RocketMQ's own push consumers, 4.9.7 and 5.3.3, as members of groups at our broker: who has which queues."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.producer import Producer
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.sockets.client import RemotingClient
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.harness.conditions import await_that
from tests.interop import needs
from tests.interop.rocketmq import RealClient
from tests.interop.sides import OurNameServer
from tools.common.local_broker import LocalBroker

SIZES = {"mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536, "brokerName": "a"}
QUEUES = 4
SECONDS = 300  # rebalancing goes by twenty seconds, a lock by sixty


class Consumers(RealClient):
    """Push consumers of one JVM (java/Groups.java)."""

    main_class = "Groups"

    def join(self, name: str, **options: Any) -> None:
        """One more."""
        self.ask("join", name=name, group="g", topic="t", **options)

    def state(self, name: str) -> dict[str, Any]:
        """Its queues, its locks, how much it received."""
        [line] = self.ask("queues", name=name)
        return line

    def has(self, name: str, count: int) -> bool:
        """Whether it has so many queues of the topic, and their locks."""
        queues, locked = self.queues(name), self.state(name)["locked"]
        return len(queues) == count and set(queues) <= set(locked)

    def queues(self, *names: str) -> list[str]:
        """Of the topic's queues, those that these have, in order of the names."""
        return [queue for name in names for queue in self.state(name)["queues"] if queue.startswith("t:")]


def kill_clients_role(store: Path) -> None:
    """kill -9 of the clients role, which comes back."""
    counters = BrokerCounters.attach(extent.require_running(store).region_directory)
    before = await_that(counters.pids["clients"].read, "it runs")
    os.kill(before, signal.SIGKILL)
    await_that(lambda: counters.pids["clients"].read() not in (0, before), "there is another clients role")


def members_of(asking: RemotingClient, group: str) -> int:
    answer = asking.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    return len(json.loads(bytes(answer.body))["consumerIdList"]) if answer.code == 0 else 0


@pytest.mark.interop
@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_a_clients_role_that_is_killed_comes_back_with_members_locks_and_offsets(version: str, tmp_path: Path) -> None:
    """No member loses a queue, no lock goes to another, no offset goes back, however often it dies."""
    needs.need([version])
    compat = "5" if version.startswith("5") else "4.9"
    with (
        OurNameServer(tmp_path / "names", version) as names,
        LocalBroker(tmp_path / "m", namesrvAddr=names.address, compat=compat, **SIZES) as broker,
        Producer(str(broker.store), timeout=60.0) as producer,
        Consumers(tmp_path / "consumers", names) as consumers,
        RemotingClient(f"127.0.0.1:{broker.port}", 120.0) as asking,
    ):
        for queue in range(QUEUES):
            producer.send("t", b"body", queue_id=queue)
        for name in ("one", "two"):
            consumers.join(name, orderly=True)
        for name in ("one", "two"):
            await_that(partial(consumers.has, name, QUEUES // 2), "each has a half, and its locks", SECONDS)
        shares = consumers.queues("one"), consumers.queues("two")
        stranger = {
            "consumerGroup": "g",
            "clientId": "stranger",
            "mqSet": [{"brokerName": "a", "topic": "t", "queueId": queue} for queue in range(QUEUES)],
        }
        for offset in range(20, 25):
            fields = {"consumerGroup": "kept", "topic": "t", "queueId": "1", "commitOffset": str(offset)}
            if compat == "5":
                asking.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"kept"}')
            assert asking.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
            kill_clients_role(broker.store)
            # It waits two seconds for a front that says who was there; a busy machine's may be later.
            await_that(lambda: members_of(asking, "g") == 2, "both are members")
            answer = asking.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
            assert answer.ext_fields == {"offset": str(offset)}
            locks = asking.ask(RequestCode.LOCK_BATCH_MQ, body=json.dumps(stranger).encode())
            assert json.loads(bytes(locks.body)) == {"lockOKMQSet": []}, "all are somebody's"
        assert (consumers.queues("one"), consumers.queues("two")) == shares


@pytest.mark.interop
@pytest.mark.parametrize("compat", ["4.9", "5"])
@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_members_share_the_queues_of_a_topic(version: str, compat: str, tmp_path: Path) -> None:
    needs.need([version])
    all_of_it = [f"t:{number}" for number in range(QUEUES)]
    with (
        OurNameServer(tmp_path / "names", version) as names,
        LocalBroker(tmp_path / "m", namesrvAddr=names.address, compat=compat, **SIZES) as broker,
        Producer(str(broker.store), timeout=60.0) as producer,
        Consumers(tmp_path / "consumers", names) as consumers,
    ):
        for queue in range(QUEUES):
            producer.send("t", b"body", queue_id=queue)
        consumers.join("one", orderly=True)
        await_that(lambda: consumers.queues("one") == all_of_it, "it has all queues", SECONDS)
        await_that(lambda: len(consumers.state("one")["locked"]) >= QUEUES, "and their locks", SECONDS)
        consumers.join("two", orderly=True)
        await_that(lambda: sorted(consumers.queues("one", "two")) == all_of_it, "they share them", SECONDS)
        await_that(lambda: len(consumers.queues("one")) == QUEUES // 2, "in halves", SECONDS)
        consumers.ask("leave", name="one")
        await_that(lambda: consumers.queues("two") == all_of_it, "the other one has all", SECONDS)
