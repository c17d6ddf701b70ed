"""Requests for locks of queues as bodies, and which of them a group of brokers has given together.

Implements: LockBatchRequestBody, UnlockBatchRequestBody, LockBatchResponseBody; lockBatchMQ's quorum
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from engine.protocol.clients.heartbeat import BODY_BYTES_MAX, NAME_CHARACTERS_MAX
from engine.protocol.remoting.answers import Json, body_of
from engine.protocol.remoting.places import Place, hash_order
from store.tables import fastjson
from store.tables.fastjson import MalformedJson
from store.tables.java_fields import JavaFields

QUEUES_MAX = 100_000  # of a request
REQUEST, ANSWER = "request for locks", "answer to a request for locks"


class LockRequest(NamedTuple):
    """A client's request to lock or unlock queues, and whether it is for this broker alone."""

    group: str
    client_id: str
    queues: list[Place]
    only_this_broker: bool


def request_of(body: bytes | memoryview) -> LockRequest:
    """Parse a lock request of a client or another broker. Raises MalformedJson."""
    fields = JavaFields(fastjson.sent(body, REQUEST, BODY_BYTES_MAX), REQUEST)
    group, client_id = (_text(fields, name, REQUEST) for name in ("consumerGroup", "clientId"))
    return LockRequest(group, client_id, _queues(fields, "mqSet", REQUEST), fields.flag("onlyThisBroker"))


def request_body(group: str, client_id: str, queues: Iterable[Place], *, only_this_broker: bool) -> bytes:
    """Return the body by which a client asks its broker, or one broker another for a client."""
    places = [place.value() for place in queues]
    fields = {"clientId": client_id, "consumerGroup": group, "mqSet": places, "onlyThisBroker": only_this_broker}
    return body_of(fields)


def answer_value(locked: Sequence[Place]) -> Json:
    """The queues that are the client's, as Java's HashSet lists them."""
    return {"lockOKMQSet": [place.value() for place in hash_order(locked)]}


def locked_of(body: bytes | memoryview) -> list[Place]:
    """Return the queues that another broker locked. Raises MalformedJson."""
    return _queues(JavaFields(fastjson.sent(body, ANSWER, BODY_BYTES_MAX), ANSWER), "lockOKMQSet", ANSWER)


def by_quorum(own: Iterable[Place], theirs: Iterable[Sequence[Place]], quorum: int) -> list[Place]:
    """Return which own locks enough brokers have given: this broker and others, each of which counts once."""
    others = [frozenset(locked) for locked in theirs]
    return [queue for queue in own if 1 + sum(queue in locked for locked in others) >= quorum]


def _queues(fields: JavaFields, name: str, what: str) -> list[Place]:
    return [
        Place(_text(one, "topic", what), _text(one, "brokerName", what), one.number("queueId"))
        for one in fields.objects(name, QUEUES_MAX)
    ]


def _text(fields: JavaFields, name: str, what: str) -> str:
    value = fields.text(name)
    if value is None or not 0 < len(value.encode()) <= NAME_CHARACTERS_MAX:
        raise MalformedJson(what, f"{name} is not a text of 1 to {NAME_CHARACTERS_MAX} bytes")
    return value
