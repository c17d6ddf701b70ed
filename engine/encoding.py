"""Messages into a ring, compiled: a record is written once, by its producer, in its final bytes.

Implements: MessageExtEncoder (spec: store-formats, record v1)
The producer pays for encoding and for the body's CRC. The writer fills in queue offset, physical offset and store
timestamp. What is the same for all messages of a queue is a template: an empty message's record.

`local`: the producer's private words, TAIL_LOCAL (records published) and POSITION (end of the data published).
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np

from engine.crc import crc32
from ipc.atomics import ring, store_release
from ipc.compiling import inlined, kernel
from ipc.memory import copy_bytes, store_be16, store_be32, store_be64
from ipc.region import Bytes, Words
from ipc.ring import TAIL, describe, room_at
from store.message_id import Host
from store.record import FIXED_BYTES, encode

TAIL_LOCAL, POSITION, LOCAL_WORDS = 0, 1, 2
CRC_MASK = 0x7FFFFFFF
BODY_CRC_AT, FLAG_AT, BORN_TIMESTAMP_AT = 8, 16, 40
PUBLISH_RECORDS, PUBLISH_BYTES = 512, 256 * 1024  # what a batch publishes at once, so that the writer works beside it


class Template:
    """The bytes of an empty message of one queue."""

    def __init__(self, topic: str, queue_id: int, slot: int, born_host: Host, store_host: Host) -> None:
        record = encode(topic=topic, queue_id=queue_id, body=b"", born_host=born_host, store_host=store_host)
        topic_bytes = len(topic.encode())
        self.topic, self.queue_id, self.slot = topic, queue_id, slot
        self.fixed_bytes = len(record)
        self.body_at = len(record) - 2 - topic_bytes - 1  # then the topic's length, the topic, the properties' length
        self.bytes: Bytes = np.frombuffer(record, np.uint8).copy()
        assert self.fixed_bytes >= FIXED_BYTES


@inlined
def _write(
    data: Bytes,
    at: int,
    template: Bytes,
    body_at: int,
    body: Bytes,
    body_start: int,
    body_bytes: int,
    properties: Bytes,
    properties_start: int,
    properties_bytes: int,
    born_ms: int,
) -> int:
    """One record at `at`; its length."""
    length = template.size + body_bytes + properties_bytes
    copy_bytes(data, at, template, 0, body_at)
    store_be32(data, at, length)
    store_be32(data, at + BODY_CRC_AT, crc32(body, body_start, body_bytes) & CRC_MASK)
    store_be64(data, at + BORN_TIMESTAMP_AT, born_ms)
    store_be32(data, at + body_at - 4, body_bytes)
    copy_bytes(data, at + body_at, body, body_start, body_bytes)
    topic_bytes = template.size - body_at  # with both lengths around it
    after = at + body_at + body_bytes
    copy_bytes(data, after, template, body_at, topic_bytes)
    store_be16(data, after + topic_bytes - 2, properties_bytes)
    copy_bytes(data, after + topic_bytes, properties, properties_start, properties_bytes)
    return length


@kernel
def put_one(
    data: Bytes,
    words: Words,
    control: Words,
    local: Words,
    template: Bytes,
    body_at: int,
    slot: int,
    flag: int,
    body: Bytes,
    properties: Bytes,
    born_ms: int,
    bell: Words,
    bell_index: int,
) -> int:
    """Publish one message; its number in the ring, or -1 when there is no room now."""
    number = local[TAIL_LOCAL]
    position = room_at(control, words, data.size, number, local[POSITION], template.size + body.size + properties.size)
    if position < 0:
        return -1
    at = position % data.size
    length = _write(data, at, template, body_at, body, 0, body.size, properties, 0, properties.size, born_ms)
    if flag != 0:
        store_be32(data, at + FLAG_AT, flag)
    describe(words, number, position, length, slot)
    local[POSITION] = position + length
    local[TAIL_LOCAL] = number + 1
    store_release(control, TAIL, number + 1)
    ring(bell, bell_index)
    return number


@kernel
def put_many(
    data: Bytes,
    words: Words,
    control: Words,
    local: Words,
    template: Bytes,
    body_at: int,
    slot: int,
    bodies: Bytes,
    body_ends: Words,
    properties: Bytes,
    property_ends: Words,
    shared: bool,
    first: int,
    born_ms: int,
    bell: Words,
    bell_index: int,
) -> int:
    """Publish messages from number `first` of a batch on, while there is room; the first one left.

    Message k has bodies[body_ends[k]:body_ends[k + 1]]; likewise its properties, unless they are `shared`: then
    all messages have those of message 0.
    """
    count = body_ends.size - 1
    number, position = local[TAIL_LOCAL], local[POSITION]
    published, published_position = number, position
    k = first
    while k < count:
        of = 0 if shared else k
        property_bytes = property_ends[of + 1] - property_ends[of]
        body_bytes = body_ends[k + 1] - body_ends[k]
        start = room_at(control, words, data.size, number, position, template.size + body_bytes + property_bytes)
        if start < 0:
            break
        length = _write(
            data,
            start % data.size,
            template,
            body_at,
            bodies,
            body_ends[k],
            body_bytes,
            properties,
            property_ends[of],
            property_bytes,
            born_ms,
        )
        describe(words, number, start, length, slot)
        number += 1
        k += 1
        position = start + length
        if number - published >= PUBLISH_RECORDS or position - published_position >= PUBLISH_BYTES:
            store_release(control, TAIL, number)
            ring(bell, bell_index)
            published, published_position = number, position
    local[TAIL_LOCAL], local[POSITION] = number, position
    if number != published:
        store_release(control, TAIL, number)
        ring(bell, bell_index)
    return k
