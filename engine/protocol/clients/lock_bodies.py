"""Requests for locks of queues as bodies, and which of them a group of brokers has given together.

Implements: LockBatchRequestBody, UnlockBatchRequestBody, LockBatchResponseBody; lockBatchMQ's quorum
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from engine.protocol.clients.heartbeat import BODY_BYTES_MAX, NAME_CHARACTERS_MAX
from engine.protocol.clients.locks import MessageQueue
from engine.protocol.remoting.answers import Json, body_of
from store.errors import MalformedData
from store.message.properties import java_hash
from store.tables import fastjson
from store.tables.fastjson import INT32_MAX, INT32_MIN
from store.tables.tables import hash_map_order

QUEUES_MAX = 100_000  # of a request
HASH_PRIME = 31
REQUEST, ANSWER = "request for locks", "answer to a request for locks"


class LockRequest(NamedTuple):
    """Who wants, or gives back, which queues; whether the brokers of the group are to be asked, too."""

    group: str
    client_id: str
    queues: list[MessageQueue]
    only_this_broker: bool


def request_of(body: bytes | memoryview) -> LockRequest:
    """What a client, or another broker, asks. Raises MalformedData."""
    fields: Any = fastjson.loads(body, REQUEST, BODY_BYTES_MAX)
    if not isinstance(fields, dict):
        raise MalformedData(REQUEST, "the body is no object")
    group, client_id = (_text(fields, name, REQUEST) for name in ("consumerGroup", "clientId"))
    return LockRequest(group, client_id, _queues(fields.get("mqSet"), REQUEST), fields.get("onlyThisBroker") is True)


def request_body(group: str, client_id: str, queues: Iterable[MessageQueue]) -> bytes:
    """What one broker asks another for a client."""
    fields = {"clientId": client_id, "consumerGroup": group, "mqSet": _values(queues), "onlyThisBroker": True}
    return body_of(fields)


def answer_value(locked: Sequence[MessageQueue]) -> Json:
    """The queues that are the client's, as Java's HashSet lists them."""
    return {"lockOKMQSet": _values(_hash_order(locked))}


def locked_of(body: bytes | memoryview) -> list[MessageQueue]:
    """What another broker locked. Raises MalformedData."""
    fields: Any = fastjson.loads(body, ANSWER, BODY_BYTES_MAX)
    if not isinstance(fields, dict):
        raise MalformedData(ANSWER, "the body is no object")
    return _queues(fields.get("lockOKMQSet"), ANSWER)


def by_quorum(own: Iterable[MessageQueue], theirs: Iterable[Sequence[MessageQueue]], quorum: int) -> list[MessageQueue]:
    """Of our locks, those that enough brokers have given: this one, and others, each of which counts once."""
    others = [frozenset(locked) for locked in theirs]
    return [queue for queue in own if 1 + sum(queue in locked for locked in others) >= quorum]


def _queues(value: Any, what: str) -> list[MessageQueue]:
    if not isinstance(value, list | None) or len(value or ()) > QUEUES_MAX:
        raise MalformedData(what, f"the queues are no list, or more than {QUEUES_MAX}")
    return [_queue_of(one, what) for one in value or ()]


def _queue_of(value: Any, what: str) -> MessageQueue:
    if not isinstance(value, dict):
        raise MalformedData(what, "a queue is no object")
    try:
        queue_id = fastjson.whole_number(value.get("queueId", 0), INT32_MIN, INT32_MAX)
    except ValueError as wrong:
        raise MalformedData(what, f"queueId: {wrong}") from None
    return MessageQueue(_text(value, "topic", what), _text(value, "brokerName", what), queue_id)


def _text(fields: Json, name: str, what: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not 0 < len(value.encode("utf-8", "surrogatepass")) <= NAME_CHARACTERS_MAX:
        raise MalformedData(what, f"{name} is no text of 1 to {NAME_CHARACTERS_MAX} bytes")
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
