"""A broker of a test's own, with consumers that read its store or pull from it, and messages for them."""

from __future__ import annotations

from typing import Any

from engine.clients.consuming.consumer import Consumer, Topics
from engine.producer import Producer
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.sockets.client import RemotingClient
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.harness.conditions import await_that
from tools.common.local_broker import LocalBroker

SIZES = {
    "mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536, "brokerName": "b",
    "messageDelayLevel": "1s " * 17 + "1s", "brokerFastFailureEnable": "false", "osPageCacheBusyTimeOutMills": 600_000,
}  # fmt: skip
FIRST = {"consume_from": "first", "timeout": 120.0}


class Broker(LocalBroker):
    """A broker with consumers that read its store on their host, or pull from its address."""

    is_local = True

    def consumer(self, group: str, topics: Topics, **options: Any) -> Consumer:
        if self.is_local:
            return Consumer(self.store, group, topics, **options)
        return Consumer(None, group, topics, broker=self.address, **options)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


def send(broker: Broker, topic: str, bodies: list[str], queue_id: int | None = 0, **fields: Any) -> None:
    with Producer(broker.store, timeout=120.0) as producer:
        for body in bodies:
            producer.send(topic, body, queue_id=queue_id, **fields)
    counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory)
    await_that(lambda: counters.reput_from_offset.read() == counters.max_physical_offset.read(), "all is in its queue")


def make_batch_topic(client: RemotingClient) -> None:
    """Have a broker of line 5 make the topic `t` with one queue, which keeps each batch as one record."""
    fields = {
        "topic": "t", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", "attributes": "+queue.type=BatchCQ",
    }  # fmt: skip
    client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
