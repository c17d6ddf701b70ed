"""Batches as clients send them (request code 320): a record for each message, or one record of all (inner batch).

Implements: SendMessageProcessor.sendBatchMessage, CommitLog.asyncPutMessages, MessageExtEncoder.encode of a
MessageExtBatch, MessageDecoder.countInnerMsgNum (spec: store-formats, section 5)
An item is total size (4), magic (4) and body CRC (4), which nobody looks at, flag (4), body length (4), the body,
properties length (2), the properties. What the client sent as the request's properties goes behind each item's own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from store.errors import InvalidMessage, PropertiesTooLarge
from store.message.delay import SCHEDULE_TOPIC
from store.message.properties import CLUSTER, INNER_NUM, MAX_PROPERTIES_BYTES, PAIR_SEPARATOR, UNIQ_KEY
from store.message.record import TRANSACTION_MASK, SysFlag
from store.message.topics import RETRY_PREFIX
from store.put.policy import Facts, parse_properties, property_text, text_bytes
from store.put.request import (
    SendRequest,
    Stored,
    check_topic,
    hooked,
    reserved_removed,
    sys_flag_of,
)

ITEM_HEAD = struct.Struct(">iIiii")  # total size, magic, body CRC, flag, body length
LENGTH = struct.Struct(">h")
SEPARATOR = PAIR_SEPARATOR.encode()
UNDERFLOW, OUT_OF_BOUNDS = "java.nio.BufferUnderflowException", "java.lang.ArrayIndexOutOfBoundsException"
LARGE = "batch's size"  # the field that is wrong in one above maxMessageSize
INNER_NUM_MAX = (1 << 15) - 1  # parsed as a short


class Item(NamedTuple):
    """One message of a batch, decoded."""

    flag: int
    body: bytes
    properties: bytes


def items_of(body: bytes) -> Iterator[Item]:
    """The messages of a batch's body. Raises InvalidMessage where it does not add up."""
    at = 0
    while at < len(body):
        if at + ITEM_HEAD.size > len(body):
            raise InvalidMessage("batch", f"{len(body) - at} bytes at {at} are less than a message's head", UNDERFLOW)
        _size, _magic, _crc, flag, body_bytes = ITEM_HEAD.unpack_from(body, at)
        body_at = at + ITEM_HEAD.size
        body_end = body_at + body_bytes
        if body_bytes < 0 or body_end + LENGTH.size > len(body):
            thrown = UNDERFLOW if body_bytes >= 0 and body_end <= len(body) else OUT_OF_BOUNDS
            raise InvalidMessage("batch", f"the message at {at} has a body of {body_bytes} bytes", thrown)
        (property_bytes,) = LENGTH.unpack_from(body, body_end)
        end = body_end + LENGTH.size + property_bytes
        if property_bytes < 0 or end > len(body):
            thrown = OUT_OF_BOUNDS if property_bytes < 0 else _beyond(end, body)
            raise InvalidMessage("batch", f"the message at {at} has properties of {property_bytes} bytes", thrown)
        yield Item(flag, body[body_at:body_end], body[body_end + LENGTH.size : end])
        at = end


def _beyond(end: int, body: bytes) -> str:
    return f"java.lang.IllegalArgumentException: newPosition > limit: ({end} > {len(body)})"


def count_inner(body: bytes) -> int:
    """Return how many messages a body holds, by the sizes that they give. Raises InvalidMessage."""
    count = at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big", signed=True)
        if at + 4 > len(body) or size < ITEM_HEAD.size + LENGTH.size or at + size > len(body):
            thrown = UNDERFLOW if at + 4 > len(body) else _beyond(at + size, body)
            raise InvalidMessage("batch", f"the message at {at} says that it has {size} bytes", thrown)
        count, at = count + 1, at + size
    return count


def received_batch(request: SendRequest, facts: Facts) -> Stored:
    """The batch as a whole: its `body` is the request's; one record if it is an inner batch. Raises InvalidMessage."""
    policy = facts.policy
    check_topic(request.topic)
    if policy.inner_batches and request.topic.startswith(RETRY_PREFIX):
        raise InvalidMessage("topic", f"{request.topic}: RocketMQ 5.x takes no batch for a retry topic")
    fields = parse_properties(policy, reserved_removed(request.properties, facts))
    fields.put(CLUSTER, facts.cluster_name)
    batch = Stored(
        topic=request.topic,
        queue_id=request.queue_id,
        body=request.body,
        fields=fields,
        flag=request.flag,
        properties=property_text(policy, fields),
        sys_flag=sys_flag_of(request, request.topic, facts),
        born_timestamp_ms=request.born_timestamp_ms,
        born_host=request.born_host,
        store_host=facts.store_host,
        reconsume_times=request.reconsume_times,
    )
    if policy.inner_batches and request.topic in facts.batch_topics and UNIQ_KEY in fields:
        count = count_inner(request.body)
        if count > INNER_NUM_MAX:
            raise InvalidMessage("batch", f"{count} messages, at most {INNER_NUM_MAX} in one record")
        fields.put(INNER_NUM, str(count))
        flags = batch.sys_flag | SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH
        batch = replace(batch, sys_flag=flags, properties=property_text(policy, fields))
    return batch


def batch_to_log(batch: Stored, facts: Facts) -> list[Stored]:
    """The messages of a classic batch, each as it is stored. Raises InvalidMessage, PropertiesTooLarge."""
    if len(batch.body) > facts.message_bytes_max:
        raise InvalidMessage(LARGE, f"{len(batch.body)} bytes, maxMessageSize is {facts.message_bytes_max}")
    if facts.policy.timers:  # 5.x: the hooks see the batch as a message
        batch = hooked(batch, facts)
    if batch.sys_flag & TRANSACTION_MASK or batch.delay_level > 0 or batch.topic == SCHEDULE_TOPIC:
        raise InvalidMessage("batch", "RocketMQ takes no transactions and no delay levels in batches")
    shared = text_bytes(property_text(facts.policy, batch.fields))
    if len(shared) > MAX_PROPERTIES_BYTES:
        raise PropertiesTooLarge(len(shared), MAX_PROPERTIES_BYTES)
    messages = []
    for flag, body, properties in items_of(batch.body):
        between = SEPARATOR if properties and not properties.endswith(SEPARATOR) else b""
        raw = properties + between + shared
        if len(raw) > MAX_PROPERTIES_BYTES:  # RocketMQ writes such a record, and cannot read it again
            raise PropertiesTooLarge(len(raw), MAX_PROPERTIES_BYTES)
        messages.append(replace(batch, body=body, flag=flag, raw_properties=raw))
    if not messages:
        raise InvalidMessage("batch", "it holds no message")
    return messages
