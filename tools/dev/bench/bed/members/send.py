"""The sender of a comparison, in a process of its own: it fills a topic's queues at once, or sends at a steady pace.

python -m tools.dev.bench.bed.members.send KIND ADDRESS TOPIC --messages 400000 --size 1024
"""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

from engine.clients.admin import AdminClient, TopicSettings
from engine.clients.sending.producer import RemoteProducer
from engine.producer import Producer
from store.reading import extent
from tools.dev.bench.bed.members.consume import STAMP_BYTES

QUEUES, BATCH, TIMEOUT_SECONDS = 8, 200, 60.0


class Sender(ABC):
    """Sends to the queues of one topic, with its library's client."""

    def __init__(self, topic: str, client: Any) -> None:
        self._topic, self._client = topic, client

    @abstractmethod
    def send(self, body: bytes, queue: int) -> None:
        """Send one message at once."""

    @abstractmethod
    def send_many(self, bodies: list[bytes], queue: int) -> None:
        """Send some messages, which `close` waits for at the latest."""

    def close(self) -> None:
        """Wait until all is stored."""
        self._client.close()


class Local(Sender):
    """A `slipstream.Producer` of the store at `address`."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(topic, Producer(address, timeout=TIMEOUT_SECONDS))

    def send(self, body: bytes, queue: int) -> None:
        """Send through shared memory, and wait."""
        self._client.send(self._topic, body, queue_id=queue)

    def send_many(self, bodies: list[bytes], queue: int) -> None:
        """Send one batch, and wait."""
        self._client.send_batch(self._topic, bodies, queue_id=queue)


class Remote(Sender):
    """A `slipstream.RemoteProducer` of the broker at `address`: Slipstream's, or RocketMQ's."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(topic, RemoteProducer(broker=address, group="bench", timeout=TIMEOUT_SECONDS))
        self._places = self._client.queues(topic)

    def send(self, body: bytes, queue: int) -> None:
        """Send one request, and wait for its answer."""
        self._client.send(self._topic, body, queue_id=self._places[queue])

    def send_many(self, bodies: list[bytes], queue: int) -> None:
        """Send a batch in one request."""
        self._client.send_batch(self._topic, bodies, queue_id=self._places[queue])


class Kafka(Sender):
    """The producer of confluent-kafka, which sends in a thread of its own."""

    def __init__(self, address: str, topic: str) -> None:
        conf = {"bootstrap.servers": address, "linger.ms": 0, "queue.buffering.max.messages": 1 << 20}
        super().__init__(topic, import_module("confluent_kafka").Producer(conf))

    def send(self, body: bytes, queue: int) -> None:
        """Send without waiting for an answer."""
        self._client.produce(self._topic, body, partition=queue)
        self._client.poll(0)

    def send_many(self, bodies: list[bytes], queue: int) -> None:
        """Send one after another: the library makes batches by itself."""
        for body in bodies:
            self.send(body, queue)

    def close(self) -> None:
        """Wait for all answers. Raises RuntimeError."""
        if left := self._client.flush(TIMEOUT_SECONDS):
            raise RuntimeError(f"{left} messages have no answer from Kafka")


class Redis(Sender):
    """The client of redis-py; all of a topic is one stream."""

    def __init__(self, address: str, topic: str) -> None:
        host, _, port = address.partition(":")
        super().__init__(topic, import_module("redis").Redis(host, int(port), protocol=2, socket_timeout=None))

    def send(self, body: bytes, queue: int) -> None:
        """Send one XADD, and wait for its answer."""
        self._client.xadd(self._topic, {"body": body})

    def send_many(self, bodies: list[bytes], queue: int) -> None:
        """Send many XADDs in a pipeline."""
        pipeline = self._client.pipeline(transaction=False)
        for body in bodies:
            pipeline.xadd(self._topic, {"body": body})
        pipeline.execute()


SENDERS: dict[str, Callable[[str, str], Sender]] = {"local": Local, "remote": Remote, "kafka": Kafka, "redis": Redis}


def make_topic(kind: str, address: str, topic: str) -> None:
    """Create a topic with all its queues; a stream needs none."""
    if kind == "kafka":
        module = import_module("confluent_kafka.admin")
        admin = module.AdminClient({"bootstrap.servers": address})
        admin.create_topics([module.NewTopic(topic, QUEUES)])[topic].result(TIMEOUT_SECONDS)
    elif kind != "redis":
        is_store = os.sep in address
        broker = str(extent.require_running(address).settings["storeHost"]) if is_store else address
        with AdminClient("") as client:
            client.create_topic(broker, TopicSettings(topic, QUEUES, QUEUES))


@click.command()
@click.argument("kind", type=click.Choice(list(SENDERS)))
@click.argument("address")
@click.argument("topic")
@click.option("--size", default=1024, help="Bytes of a body.")
@click.option("--messages", default=400_000)
@click.option("--interval-us", default=0, help="Send one each; 0: all as fast as it goes, a queue after the other.")
def main(kind: str, address: str, topic: str, size: int, messages: int, interval_us: int) -> None:
    """Send MESSAGES to TOPIC, which exists."""
    sender = SENDERS[kind](address, topic)
    print("ready", flush=True)
    sys.stdin.readline()
    if interval_us:
        _pace(sender, size, messages, interval_us * 1000)
    else:
        for queue in range(QUEUES):
            for left in range(messages // QUEUES, 0, -BATCH):
                sender.send_many([bytes(size)] * min(BATCH, left), queue)
    sender.close()
    print(json.dumps({"messages": messages}), flush=True)


def _pace(sender: Sender, size: int, messages: int, interval_ns: int) -> None:
    due = time.monotonic_ns()
    for number in range(messages):
        due += interval_ns
        if (left := due - time.monotonic_ns()) > 0:
            time.sleep(left / 1e9)
        stamp = str(time.monotonic_ns()).zfill(STAMP_BYTES).encode()
        sender.send(stamp.ljust(size, b"."), number % QUEUES)


if __name__ == "__main__":
    main()
