"""What a broker writes of its own accord: that a group asked for an offset which its queue does not have.

Implements: PullMessageProcessor.generateOffsetMovedEvent, OffsetMovedEvent
"""

from __future__ import annotations

from typing import NamedTuple

from store.message.properties import DELAY, KEYS, TAGS
from store.message.topics import OFFSET_MOVED_TOPIC
from store.put.java_map import JavaMap
from store.put.policy import Facts, property_text
from store.put.request import Stored
from store.put.resend import NEW_MAP_CAPACITY
from store.tables import fastjson


class MovedOffset(NamedTuple):
    """Event: a group continues in a queue at another offset than it asked for."""

    group: str
    topic: str
    queue_id: int
    requested: int
    new_offset: int


def offset_moved(event: MovedOffset, broker_name: str, facts: Facts, now_ms: int) -> Stored:
    """The message about it, in queue 0 of its topic."""
    fields = JavaMap(NEW_MAP_CAPACITY, [(TAGS, event.group), (DELAY, "0"), (KEYS, event.group)])
    queue = {"brokerName": broker_name, "queueId": event.queue_id, "topic": event.topic}
    body = {
        "consumerGroup": event.group, "messageQueue": queue, "offsetNew": event.new_offset,
        "offsetRequest": event.requested,
    }  # fmt: skip
    return Stored(
        topic=OFFSET_MOVED_TOPIC,
        queue_id=0,
        body=fastjson.dumps(body).encode("utf-8", "replace"),
        fields=fields,
        properties=property_text(facts.policy, fields),
        born_timestamp_ms=now_ms,
        born_host=facts.store_host,
        store_host=facts.store_host,
    )
