"""From a request to what is stored: what a broker does to a message between its processor and its log.

Implements: SendMessageProcessor.sendMessage, HookUtils (5.x), CommitLog.asyncPutMessage up to the encoder
(spec: store-formats, sections 3, 5, 8)
Pure: requests, the broker's facts and the time in, messages out. The writer gives offsets and store time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from store.errors import InvalidMessage, PropertiesTooLarge
from store.java_map import JavaMap
from store.message_id import Host
from store.message_policy import Facts, parse_properties, property_text, text_bytes
from store.properties import MAX_PROPERTIES_BYTES, UNIQ_KEY
from store.record import MAX_TOPIC_BYTES, NO_HOST, encode

CLUSTER, WAIT, MSG_REGION, TRACE_ON, POP_CHECK = "CLUSTER", "WAIT", "MSG_REGION", "TRACE_ON", "POP_CK"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequest:
    """A SEND_MESSAGE request: its header's fields, and its body. `properties` is the string as the client sent it.

    `batch`: the body is a classic batch (request code 320). `max_reconsume_times`: of the header, else of the group.
    """

    topic: str
    body: bytes
    queue_id: int = 0
    sys_flag: int = 0
    flag: int = 0
    born_timestamp_ms: int = 0
    born_host: Host = NO_HOST
    properties: str = ""
    reconsume_times: int = 0
    max_reconsume_times: int = 16
    batch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A message on its way into the log: all of its record but what the writer gives it."""

    topic: str
    queue_id: int
    body: bytes
    properties: str
    fields: JavaMap
    sys_flag: int = 0
    flag: int = 0
    born_timestamp_ms: int = 0
    born_host: Host = NO_HOST
    store_host: Host = NO_HOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


def stored_message(request: SendRequest, facts: Facts, new_unique_key: Callable[[], str]) -> Stored:
    """What a broker stores for a request that is not a batch. Raises InvalidMessage, PropertiesTooLarge."""
    policy = facts.policy
    fields = parse_properties(policy, request.properties)
    if policy.adds_region:
        fields.put(MSG_REGION, facts.region_id)
        fields.put(TRACE_ON, "true" if facts.trace_on else "false")
    if policy.removes_pop_check:
        fields.pop(POP_CHECK, None)
    if policy.adds_region:  # it is written out and parsed once more in between
        fields = parse_properties(policy, property_text(policy, fields))
    if policy.adds_unique_key and not fields.get(UNIQ_KEY):
        fields.put(UNIQ_KEY, new_unique_key())
    fields.put(CLUSTER, facts.cluster_name)
    wait = fields.pop(WAIT, None) if policy.removes_wait else None
    text = property_text(policy, fields)
    if wait is not None:
        fields.put(WAIT, wait)
    stored = Stored(
        topic=request.topic, queue_id=request.queue_id, body=request.body, properties=text, fields=fields,
        sys_flag=request.sys_flag, flag=request.flag, born_timestamp_ms=request.born_timestamp_ms,
        born_host=request.born_host, store_host=facts.store_host, reconsume_times=request.reconsume_times,
    )  # fmt: skip
    return checked(stored, facts)


def checked(stored: Stored, facts: Facts) -> Stored:
    """The message, if the broker would store it. Raises InvalidMessage, PropertiesTooLarge."""
    if len(text_bytes(stored.topic)) > MAX_TOPIC_BYTES:
        raise InvalidMessage("topic", f"{len(text_bytes(stored.topic))} bytes long, at most {MAX_TOPIC_BYTES}")
    if len(stored.body) > facts.message_bytes_max:
        raise InvalidMessage("body", f"{len(stored.body)} bytes, maxMessageSize is {facts.message_bytes_max}")
    if not stored.body and not facts.policy.stores_empty_bodies:
        raise InvalidMessage("body", "RocketMQ 5.x refuses an empty one")
    properties = text_bytes(stored.properties)
    if len(properties) > MAX_PROPERTIES_BYTES:
        raise PropertiesTooLarge(len(properties), MAX_PROPERTIES_BYTES)
    return stored


def record_of(stored: Stored) -> bytes:
    """Its record, but for what the writer fills in. Raises InvalidMessage."""
    return encode(
        topic=stored.topic, body=stored.body, queue_id=stored.queue_id, flag=stored.flag, sys_flag=stored.sys_flag,
        born_timestamp_ms=stored.born_timestamp_ms, born_host=stored.born_host, store_host=stored.store_host,
        reconsume_times=stored.reconsume_times, properties=text_bytes(stored.properties),
        prepared_transaction_offset=stored.prepared_transaction_offset,
    )  # fmt: skip
