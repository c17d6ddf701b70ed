"""A queue of a topic at a broker, as clients name it.

Implements: MessageQueue
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from store.message.properties import java_hash
from store.tables import fastjson
from store.tables.fastjson import whole_number
from store.tables.tables import hash_map_order, java_order

CONCURRENT_CAPACITY = 8  # of a ConcurrentHashMap made without a capacity: 16 buckets
QUEUE_ID_MAX = 2**31 - 1
KEY_OBJECT = re.compile(r"([{,])\s*(\{[^{}]*\})\s*:")


class Place(NamedTuple):
    """A queue of a topic on a broker."""

    topic: str
    broker: str
    queue_id: int

    def value(self) -> dict[str, Any]:
        """Return the place as a MessageQueue's fields."""
        return {"brokerName": self.broker, "queueId": self.queue_id, "topic": self.topic}

    @property
    def java_hash(self) -> int:
        """Return the hash of Java's MessageQueue.hashCode."""
        code = 1
        for part in (java_hash(self.broker), self.queue_id, java_hash(self.topic)):
            code = 31 * code + part
        return code & 0xFFFFFFFF


def hash_order(places: Iterable[Place], *, concurrent: bool = False) -> list[Place]:
    """Return places in the order of a HashMap or of a ConcurrentHashMap of Java."""
    by_hash: dict[int, list[Place]] = {}
    for place in places:
        by_hash.setdefault(place.java_hash, []).append(place)
    hashes = java_order(by_hash, CONCURRENT_CAPACITY) if concurrent else hash_map_order(by_hash)
    return [place for code in hashes for place in by_hash[code]]


def with_text_keys(text: str) -> str:
    """JSON of fastjson whose keys may be objects, as JSON whose keys are the texts of these objects."""
    return KEY_OBJECT.sub(lambda match: f"{match[1]}{json.dumps(match[2])}:", text)


def places_in(body: bytes | memoryview, name: str) -> dict[Place, Any]:
    """A table by queue, as fastjson writes it. Raises MalformedJson, or what MALFORMED of clients lists."""
    table = fastjson.loads(with_text_keys(bytes(body).decode("utf-8", "replace")), name).get(name)
    return {} if table is None else {_place_of(fastjson.loads(key, name)): value for key, value in table.items()}


def _place_of(queue: dict[str, Any]) -> Place:
    topic, broker = queue["topic"], queue["brokerName"]
    if not isinstance(topic, str) or not isinstance(broker, str):
        raise ValueError(f"{str(queue)[:200]} is not a queue")
    return Place(topic, broker, whole_number(queue["queueId"], 0, QUEUE_ID_MAX))
