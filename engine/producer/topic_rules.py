"""Which queues of which topics may be written to: what RocketMQ's brokers refuse, and its clients before they send.

Implements: AbstractSendMessageProcessor.msgCheck, MQClientInstance.topicRouteData2TopicPublishInfo (spec: remoting)
A RocketMQ broker leaves a topic's permission, and most of its own, to its clients: they learn it from the route, and
do not send where it forbids that. A local producer is both. topics.json is read again whenever the remoting server
has noticed that it changed, or that an administrator changed a setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.errors import (
    NoPermission,
    QueueIdIllegal,
    TopicNotExist,
)
from engine.producer.broker_facts import BrokerFacts
from engine.protocol.tables.defaults import PERM_READ_WRITE, Identity, default_topics
from engine.protocol.tables.sound_topics import TOPIC_QUEUE_NUMS
from engine.shared_memory.cursors import BrokerCounters
from store.compat import line_of
from store.message.record import MAX_TOPIC_BYTES_V2
from store.message.topics import RETRY_PREFIX, TOPIC_PATTERN, is_lmq, is_not_for_clients
from store.tables.served_topics import CLIENT_QUEUE_NUMS

PERM_WRITE = 2
TOPICS_MAX = 65_536  # remembered


class Served(NamedTuple):
    """A topic that may be written to: how many queues take turns, and below which number one may be named."""

    queue_nums: int
    queue_ids: int


class TopicRules:
    """The rules of the broker that a producer is connected to."""

    def __init__(self, facts: BrokerFacts, counters: BrokerCounters, settings: Mapping[str, Any]) -> None:
        self._facts, self._counters = facts, counters
        line = line_of(settings["compat"])
        self._queue_id_code = line.put.queue_id_code
        self._auto_create = bool(settings["autoCreateTopicEnable"])
        self._queue_nums = min(CLIENT_QUEUE_NUMS, int(settings["defaultTopicQueueNums"]))
        identity = Identity(
            line,
            str(settings["brokerClusterName"]),
            str(settings["brokerName"]),
            int(settings["defaultTopicQueueNums"]),
            self._auto_create,
            bool(settings["timerWheelEnable"]),
        )
        self._defaults = {topic: (queues, queues, perm) for topic, queues, perm in default_topics(identity)}
        self._served: dict[str, Served] = {}
        self._seen = -1

    def served(self, topic: str) -> Served:
        """Return how a topic may be written to. Raises NoPermission, TopicNotExist."""
        changes = self._counters.topics_changes.read()
        if changes != self._seen:
            self._served.clear()
            self._seen = changes
        rules = self._served.get(topic)
        if rules is None:
            if len(self._served) >= TOPICS_MAX:
                self._served.clear()
            rules = self._served[topic] = self._look(topic)
        return rules

    def check(self, topic: str, queue_id: int) -> None:
        """Raise QueueIdIllegal for a queue that the topic lacks, and what `served` raises."""
        rules = self.served(topic)
        if queue_id >= rules.queue_ids:
            raise QueueIdIllegal(topic, queue_id, rules.queue_ids, self._queue_id_code)

    def check_retry(self, topic: str) -> None:
        """Check a retry or dead-letter topic when a consumer gives back a message. Raises NoPermission."""
        fields = self._fields(topic)
        self._check_permission(topic, PERM_READ_WRITE if fields is None else fields[2])

    def _check_permission(self, topic: str, perm: int) -> None:
        if not perm & self._counters.broker_permission.read() & PERM_WRITE:
            whose = f"perm is {perm}" if not perm & PERM_WRITE else "brokerPermission"
            raise NoPermission(f"topic {topic}", f"it may not be written to ({whose}): `slipstream admin updateTopic`")

    def _look(self, topic: str) -> Served:
        if not TOPIC_PATTERN.fullmatch(topic) or len(topic) > MAX_TOPIC_BYTES_V2:
            return Served(1, 1 << 31)  # refused for its name, by who knows what it is for
        if is_not_for_clients(topic):
            raise NoPermission(f"topic {topic}", "it belongs to the broker; clients cannot send to it")
        fields = self._fields(topic)
        if fields is None:
            read = write = self._nums_of_new(topic)
            perm = PERM_READ_WRITE
        else:
            read, write, perm = fields
        self._check_permission(topic, perm)
        if write <= 0:
            raise NoPermission(f"topic {topic}", "it has no queue to write to (writeQueueNums is 0)")
        return Served(write, max(read, write))

    def _fields(self, topic: str) -> tuple[int, int, int] | None:
        """Read queues, write queues and permission of a topic that there is."""
        self._facts.current()
        config = self._facts.topics.get(topic)
        if config is None:
            is_light = self._facts.settings.enable_lmq and is_lmq(topic)
            return (1, 1, PERM_READ_WRITE) if is_light else self._defaults.get(topic)
        names = {"readQueueNums": TOPIC_QUEUE_NUMS, "writeQueueNums": TOPIC_QUEUE_NUMS, "perm": PERM_READ_WRITE}
        values = [config.get(name, default) for name, default in names.items()]
        read, write, perm = (value if type(value) is int else 0 for value in values)
        return read, write, perm

    def _nums_of_new(self, topic: str) -> int:
        """Queues of a topic that its first message makes. Raises TopicNotExist."""
        if self._auto_create:
            return self._queue_nums
        if topic.startswith(RETRY_PREFIX):
            return 1
        raise TopicNotExist(topic)
