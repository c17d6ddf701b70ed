"""Consumers for Python as their users write them: each joins a group, and hands the bodies of messages out by turns.

All acknowledge what the last turn handed out when the next one begins. A turn is one message for `one_by_one`.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from engine.clients.consuming.consumer import Consumer

BATCH = 500
JOIN_SECONDS, LOOK_SECONDS = 90.0, 0.05
Turns = Iterator[Sequence[bytes | memoryview]]


class Asked(NamedTuple):
    """What a member joins: `queues` are those of the topic that shall be its own, `patience` the seconds of a poll."""

    address: str
    topic: str
    group: str
    queues: int
    one_by_one: bool
    patience: float


class Member(ABC):
    """One consumer, with its library's client."""

    def __init__(self, of: Asked, client: Any) -> None:
        self._of, self._client = of, client

    @abstractmethod
    def join(self) -> None:
        """Become a member, and return when it has its queues and holds no message yet."""

    @abstractmethod
    def turns(self) -> Turns:
        """Yield bodies for ever: an empty turn where no message came in time."""

    def close(self) -> None:
        """Leave the group, after a last commit."""
        self._client.close()


class Slipstream(Member):
    """`slipstream.Consumer`, of the store at `address`, or of the broker there."""

    def __init__(self, of: Asked) -> None:
        where, broker = (of.address, None) if os.sep in of.address else (None, of.address)
        super().__init__(of, Consumer(where, of.group, of.topic, broker=broker, consume_from="first", timeout=60))

    def join(self) -> None:
        """Start, and wait: queues are shared without calls of the program."""
        self._client.start()
        await_queues(self._own, self._of.queues)

    def _own(self) -> int:
        time.sleep(LOOK_SECONDS)
        return sum(place.topic == self._of.topic for place in self._client.assignment())

    def turns(self) -> Turns:
        """Yield what the loop hands out, or each poll."""
        if self._of.one_by_one:
            for message in self._client:
                yield (message.body,)
        while True:
            yield [message.body for message in self._client.poll(BATCH, self._of.patience)]


class SlipstreamBatches(Slipstream):
    """The same consumer, whose program takes Arrow record batches."""

    def turns(self) -> Turns:
        """Yield the column of bodies of each batch."""
        for batch in self._client.batches(columns=["body"], timeout=self._of.patience):
            yield batch.column(0)


class Confluent(Member):
    """The client of confluent-kafka, which is librdkafka."""

    def __init__(self, of: Asked) -> None:
        conf = {"bootstrap.servers": of.address, "group.id": of.group, "auto.offset.reset": "earliest"}
        super().__init__(of, import_module("confluent_kafka").Consumer(conf))

    def join(self) -> None:
        """Let partitions rest from their assignment on, else messages come before the clock runs."""
        self._client.subscribe([self._of.topic], on_assign=_assign_at_rest)
        await_queues(self._own, self._of.queues)

    def _own(self) -> int:
        self._client.poll(LOOK_SECONDS)
        return len(self._client.assignment())

    def turns(self) -> Turns:
        """Yield what `poll` hands out, or `consume`, which waits for a full batch."""
        self._client.resume(self._client.assignment())
        while True:
            if self._of.one_by_one:
                message = self._client.poll(self._of.patience)
                yield [message.value()] if message is not None and message.error() is None else []
            else:
                every = self._client.consume(BATCH, self._of.patience)
                yield [message.value() for message in every if message.error() is None]


def _assign_at_rest(consumer: Any, partitions: list[Any]) -> None:
    consumer.assign(partitions)
    consumer.pause(partitions)


class KafkaPython(Member):
    """The client of kafka-python, which is Python alone."""

    def __init__(self, of: Asked) -> None:
        conf = {"bootstrap_servers": of.address, "group_id": of.group, "auto_offset_reset": "earliest"}
        super().__init__(of, import_module("kafka").KafkaConsumer(**conf))

    def join(self) -> None:
        """Poll, without which it does not join; the messages of these polls come again."""
        self._client.subscribe([self._of.topic])
        await_queues(self._own, self._of.queues)

    def _own(self) -> int:
        self._client.poll(timeout_ms=LOOK_SECONDS * 1000, max_records=1)
        return len(self._client.assignment())

    def turns(self) -> Turns:
        """Yield what the loop hands out, or each poll."""
        self._client.seek_to_beginning()
        if self._of.one_by_one:
            for record in self._client:
                yield (record.value,)
        while True:
            polled = self._client.poll(timeout_ms=self._of.patience * 1000, max_records=BATCH)
            yield [record.value for records in polled.values() for record in records]


class RedisStreams(Member):
    """The client of redis-py with hiredis. A stream has no queues, so its members share it as they come."""

    def __init__(self, of: Asked) -> None:
        host, _, port = of.address.partition(":")
        super().__init__(of, import_module("redis").Redis(host, int(port), protocol=2, socket_timeout=None))

    def join(self) -> None:
        """Make the group, if another member has not."""
        with suppress(import_module("redis").ResponseError):
            self._client.xgroup_create(self._of.topic, self._of.group, id="0", mkstream=True)

    def turns(self) -> Turns:
        """Yield each XREADGROUP, and acknowledge it by one XACK."""
        topic, group, name = self._of.topic, self._of.group, str(os.getpid())
        count, block = (1 if self._of.one_by_one else BATCH), int(self._of.patience * 1000)
        while True:
            read = self._client.xreadgroup(group, name, {topic: ">"}, count=count, block=block)
            entries = read[0][1] if read else []
            yield [fields[b"body"] for _id, fields in entries]
            if entries:
                self._client.xack(topic, group, *(entry for entry, _fields in entries))


KINDS: dict[str, Callable[[Asked], Member]] = {
    "slipstream": Slipstream, "slipstream-batches": SlipstreamBatches, "confluent-kafka": Confluent,
    "kafka-python": KafkaPython, "redis-py": RedisStreams,
}  # fmt: skip


def await_queues(own: Callable[[], int], queues: int) -> None:
    """Wait until a member has as many queues. Raises RuntimeError at the deadline."""
    deadline = time.monotonic() + JOIN_SECONDS
    while (have := own()) != queues:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the member has {have} queues, not {queues}")
