"""How far groups that consume are behind: what has to be read, and the result. The caller reads the queues.

Implements: ConsumerLagCalculator
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from engine.protocol.clients.consumers import ConsumerManager
from engine.protocol.clients.heartbeat import TAG, Subscription
from store.message.topics import RETRY_PREFIX

READABLE, WRITABLE = 4, 2
EVERYTHING = "*"

Json = dict[str, Any]


class Consumed(NamedTuple):
    """One queue as a group has it: consumed up to, pulled up to (both may be what is not known), its end."""

    queue_id: int
    committed: int
    pulled: int
    end: int


class Consuming(NamedTuple):
    """A group and one of its topics; `codes`: of the tags that it wants, None: it wants all."""

    group: str
    topic: str
    codes: tuple[int, ...] | None
    queues: list[Consumed]


@dataclass(slots=True)
class Lag:
    """Values of the lag gauges; milliseconds since the first message not consumed, or not pulled, was stored."""

    lag: int = 0
    in_flight: int = 0
    ready: int = 0
    latency_ms: int = 0
    queueing_ms: int = 0


Offset = Callable[[str, str, int], int | None]  # group, topic, queue id


class Tables(NamedTuple):
    """Groups, topics and queues to measure."""

    groups: Mapping[str, Json]
    topics: Mapping[str, Json]
    consumers: ConsumerManager
    committed: Offset
    pulled: Offset
    end_of: Callable[[str, int], int]


def consuming(tables: Tables, permission: int) -> Iterator[Consuming]:
    """processAllGroup: every group that somebody is in, and each of its topics; RocketMQ's order."""
    for group in list(tables.groups):
        known = tables.consumers.groups.get(group)
        for subscription in list(known.subscriptions.values()) if known is not None else ():
            config = tables.topics.get(subscription.topic)
            if config is None or subscription.topic.startswith(RETRY_PREFIX):
                continue
            if config["perm"] & permission & (READABLE | WRITABLE):
                yield _of_topic(tables, group, subscription, int(config["writeQueueNums"]))


def _of_topic(tables: Tables, group: str, subscription: Subscription, queue_nums: int) -> Consuming:
    topic, queues = subscription.topic, []
    for queue_id in range(queue_nums):
        end, committed = tables.end_of(topic, queue_id), tables.committed(group, topic, queue_id)
        pulled = tables.pulled(group, topic, queue_id)
        at = -1 if committed is None else committed
        queues.append(Consumed(queue_id, at, at if pulled is None else pulled, end))
    return Consuming(group, topic, _codes(subscription), queues)


def _codes(subscription: Subscription) -> tuple[int, ...] | None:
    if subscription.expression_type not in (None, "", TAG) or subscription.sub_string in (None, EVERYTHING):
        return None
    return None if subscription.class_filter_mode else subscription.codes


class Spans(NamedTuple):
    """Ranges of one queue: what is not consumed, what is pulled and not consumed, what is not pulled."""

    lag: tuple[int, int]
    in_flight: tuple[int, int]
    ready: tuple[int, int]


def spans(queue: Consumed) -> Spans:
    """getConsumerLagStats, getInFlightMsgStats, getAvailableMsgCount: a group that never said is at the end."""
    committed = queue.end if queue.committed < 0 else queue.committed
    in_flight_to = max(0, queue.pulled)
    in_flight_from = in_flight_to if queue.committed < 0 else queue.committed
    ready_from = queue.end if queue.pulled < 0 else queue.pulled
    return Spans((committed, queue.end), (in_flight_from, in_flight_to), (ready_from, queue.end))


class QueueLook(Protocol):
    """The way to measure a lag in queues; `codes` None: all messages count."""

    def count(self, topic: str, queue_id: int, span: tuple[int, int], codes: tuple[int, ...] | None) -> int:
        """Return how many messages of a span are wanted."""

    def stored_ms(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when the first message from an offset on was stored, in ms; below 1: unknown."""


def lag_of(one: Consuming, look: QueueLook, now_ms: int) -> Lag:
    """Add up the lag over all queues of a group's topic."""
    total = Lag()
    for queue in one.queues:
        of = spans(queue)
        total.lag += look.count(one.topic, queue.queue_id, of.lag, one.codes)
        total.in_flight += look.count(one.topic, queue.queue_id, of.in_flight, one.codes)
        total.ready += look.count(one.topic, queue.queue_id, of.ready, one.codes)
        for (start, end), name in ((of.lag, "latency_ms"), ((of.in_flight[1], queue.end), "queueing_ms")):
            stored_ms = look.stored_ms(one.topic, queue.queue_id, start) if start < end else 0
            if stored_ms > 0:
                setattr(total, name, max(getattr(total, name), now_ms - stored_ms))
    return total
