"""Requests for locks of queues as bodies, and which of them a group of brokers has given together.

Implements: LockBatchRequestBody, UnlockBatchRequestBody, LockBatchResponseBody; lockBatchMQ's quorum
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from engine.protocol.clients.heartbeat import BODY_BYTES_MAX, NAME_CHARACTERS_MAX
from engine.protocol.clients.locks import MessageQueue
from engine.protocol.remoting.answers import Json, body_of
from store.message.properties import java_hash
from store.tables import fastjson
from store.tables.fastjson import MalformedJson
from store.tables.java_fields import JavaFields
from store.tables.tables import hash_map_order

QUEUES_MAX = 100_000  # of a request
HASH_PRIME = 31
REQUEST, ANSWER = "request for locks", "answer to a request for locks"


class LockRequest(NamedTuple):
    """A client's request to lock or unlock queues, and whether it is for this broker alone."""

    group: str
    client_id: str
    queues: list[MessageQueue]
    only_this_broker: bool


def request_of(body: bytes | memoryview) -> LockRequest:
    """Parse a lock request of a client or another broker. Raises MalformedJson."""
    fields = JavaFields(fastjson.sent(body, REQUEST, BODY_BYTES_MAX), REQUEST)
    group, client_id = (_text(fields, name, REQUEST) for name in ("consumerGroup", "clientId"))
    return LockRequest(group, client_id, _queues(fields, "mqSet", REQUEST), fields.flag("onlyThisBroker"))


def request_body(group: str, client_id: str, queues: Iterable[MessageQueue]) -> bytes:
    """Return the body by which one broker asks another for a client."""
    fields = {"clientId": client_id, "consumerGroup": group, "mqSet": _values(queues), "onlyThisBroker": True}
    return body_of(fields)


def answer_value(locked: Sequence[MessageQueue]) -> Json:
    """The queues that are the client's, as Java's HashSet lists them."""
    return {"lockOKMQSet": _values(_hash_order(locked))}


def locked_of(body: bytes | memoryview) -> list[MessageQueue]:
    """Return the queues that another broker locked. Raises MalformedJson."""
    return _queues(JavaFields(fastjson.sent(body, ANSWER, BODY_BYTES_MAX), ANSWER), "lockOKMQSet", ANSWER)


def by_quorum(own: Iterable[MessageQueue], theirs: Iterable[Sequence[MessageQueue]], quorum: int) -> list[MessageQueue]:
    """Return which own locks enough brokers have given: this broker and others, each of which counts once."""
    others = [frozenset(locked) for locked in theirs]
    return [queue for queue in own if 1 + sum(queue in locked for locked in others) >= quorum]


def _queues(fields: JavaFields, name: str, what: str) -> list[MessageQueue]:
    return [
        MessageQueue(_text(one, "topic", what), _text(one, "brokerName", what), one.number("queueId"))
        for one in fields.objects(name, QUEUES_MAX)
    ]


def _text(fields: JavaFields, name: str, what: str) -> str:
    value = fields.text(name)
    if value is None or not 0 < len(value.encode()) <= NAME_CHARACTERS_MAX:
        raise MalformedJson(what, f"{name} is not a text of 1 to {NAME_CHARACTERS_MAX} bytes")
    return value


def _values(queues: Iterable[MessageQueue]) -> list[Json]:
    return [{"brokerName": one.broker_name, "queueId": one.queue_id, "topic": one.topic} for one in queues]


def _hash_order(queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    by_hash: dict[int, list[MessageQueue]] = {}
    for queue in queues:
        by_hash.setdefault(_hash_of(queue), []).append(queue)
    return [queue for number in hash_map_order(by_hash) for queue in by_hash[number]]


def _hash_of(queue: MessageQueue) -> int:
    code = 1
    for part in (java_hash(queue.broker_name), queue.queue_id, java_hash(queue.topic)):
        code = (HASH_PRIME * code + part) & 0xFFFFFFFF
    return code
