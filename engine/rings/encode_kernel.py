"""Messages into a ring, compiled: a record is written once, by its producer, in its final bytes.

Implements: MessageExtEncoder (spec: store-formats, record v1)
The producer pays for encoding and for the body's CRC. The writer fills in queue offset, physical offset and store
timestamp, and last of all the magic number, whose bits are flipped in the ring: what a killed writer has copied but not
filled in is a record to nobody, not even to a RocketMQ broker, which never looks at the physical offset.
What is the same for all messages of a queue is a template: an empty message's record.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ipc.arrays import Bytes, Words
from ipc.compiled.atomics import ring, store_release
from ipc.compiled.crc import crc32
from ipc.compiled.kernels import bare_kernel, inlined, kernel
from ipc.compiled.memory import copy_bytes, load_be32, store_be16, store_be32, store_be64
from ipc.compiled.texts import write_hexadecimal
from ipc.ring import ControlWord, LocalWord, Outlet, describe, room_at
from store.message.host import Host
from store.message.record import (
    BODY_CRC_AT,
    BORN_TIMESTAMP_AT,
    BORN_V6,
    CRC_MASK,
    FIXED_BYTES,
    FLAG_AT,
    MAGIC_AT,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    encode,
    store_timestamp_at,
)

UNIQUE_DIGITS = 12
SYS_FLAG_LAST_BYTE_AT = SYS_FLAG_AT + 3  # of a big-endian word: the one with the bits of the hosts
STORE_TIMESTAMP_V4_AT, STORE_TIMESTAMP_V6_AT = store_timestamp_at(0), store_timestamp_at(BORN_V6)
PUBLISH_RECORDS, PUBLISH_BYTES = 512, 256 * 1024  # what a batch publishes at once, so that the writer works beside it


class Template(NamedTuple):
    """An empty message of one queue: its record, where the body goes, and the queue's slot."""

    record: Bytes
    body_at: int
    slot: int


class Column(NamedTuple):
    """Values one behind the other: value k is data[ends[k]:ends[k + 1]]."""

    data: Bytes
    ends: Words


class Batch(NamedTuple):
    """Bodies and property strings of messages.

    Each has its own properties, unless they are `shared`: then all have those of message 0, but for a number of
    UNIQUE_DIGITS at `unique_at` in them (-1: none) that counts up from `unique_first`, message by message.
    """

    bodies: Column
    properties: Column
    shared: bool
    unique_at: int
    unique_first: int


class Span(NamedTuple):
    """Part of an array: data[at:at + size]."""

    data: Bytes
    at: int
    size: int


def hidden(record: bytes) -> bytes:
    """An encoded record as it goes into the ring: its magic number's bits the other way round."""
    magic = bytes(byte ^ 0xFF for byte in record[MAGIC_AT : MAGIC_AT + 4])
    return record[:MAGIC_AT] + magic + record[MAGIC_AT + 4 :]


def template_of(topic: str, queue_id: int, slot: int, born_host: Host, store_host: Host, sys_flag: int = 0) -> Template:
    """The template of a queue. Raises InvalidMessage."""
    record = encode(
        topic=topic, queue_id=queue_id, body=b"", born_host=born_host, store_host=store_host, sys_flag=sys_flag
    )
    body_at = len(record) - 2 - len(topic.encode()) - 1  # then the topic's length, the topic, the properties' length
    assert len(record) >= FIXED_BYTES
    return Template(np.frombuffer(record, np.uint8).copy(), body_at, slot)


@inlined
def flip_magic(data: Bytes, at: int) -> None:
    """The magic number of the record at `at`, all its bits the other way round."""
    store_be32(data, at + MAGIC_AT, load_be32(data, at + MAGIC_AT) ^ -1)


@inlined
def fill_in(data: Bytes, at: int, queue_offset: int, physical_offset: int, stored_ms: int) -> None:
    """Give the record at `at` what only the writer knows; a ring has zeros there."""
    store_be64(data, at + QUEUE_OFFSET_AT, queue_offset)
    store_be64(data, at + PHYSICAL_OFFSET_AT, physical_offset)
    is_v6 = data[at + SYS_FLAG_LAST_BYTE_AT] & BORN_V6
    store_be64(data, at + (STORE_TIMESTAMP_V6_AT if is_v6 else STORE_TIMESTAMP_V4_AT), stored_ms)


@inlined
def write_body(data: Bytes, at: int, length: int, template: Template, body: Span, born_ms: int) -> int:
    """Write a record of `length` bytes up to its body's end, by a template; return where that is."""
    copy_bytes(data, at, template.record, 0, template.body_at)
    store_be32(data, at, length)
    store_be32(data, at + BODY_CRC_AT, crc32(body.data, body.at, body.size) & CRC_MASK)
    store_be64(data, at + BORN_TIMESTAMP_AT, born_ms)
    store_be32(data, at + template.body_at - 4, body.size)
    copy_bytes(data, at + template.body_at, body.data, body.at, body.size)
    return at + template.body_at + body.size


@inlined
def _write(data: Bytes, at: int, template: Template, body: Span, properties: Span, born_ms: int) -> int:
    """Write one record at `at`; return its length."""
    length = template.record.size + body.size + properties.size
    after = write_body(data, at, length, template, body, born_ms)
    flip_magic(data, at)
    topic_bytes = template.record.size - template.body_at  # with both lengths around it
    copy_bytes(data, after, template.record, template.body_at, topic_bytes)
    store_be16(data, after + topic_bytes - 2, properties.size)
    copy_bytes(data, after + topic_bytes, properties.data, properties.at, properties.size)
    return length


@inlined
def publish(outlet: Outlet, number: int) -> None:
    """Show the writer all records up to that number, and ring."""
    # The tail after record and descriptor: what it has passed is the writer's. The bell after the tail: a writer that
    # is about to sleep signs on at the bell, then looks at the tails once more.
    store_release(outlet.control, ControlWord.TAIL, number)
    ring(outlet.bell, outlet.bell_index)


@bare_kernel
def put_one(outlet: Outlet, template: Template, flag: int, body: Bytes, properties: Bytes, born_ms: int) -> int:
    """Publish one message; its number in the ring, or -1 when there is no room now."""
    data, local = outlet.data, outlet.local
    number, length = local[LocalWord.TAIL], template.record.size + body.size + properties.size
    position = room_at(outlet.control, outlet.words, data.size, number, local[LocalWord.POSITION], length)
    if position < 0:
        return -1
    at = position % data.size
    _write(data, at, template, Span(body, 0, body.size), Span(properties, 0, properties.size), born_ms)
    if flag != 0:
        store_be32(data, at + FLAG_AT, flag)
    describe(outlet.words, number, position, length, template.slot)
    local[LocalWord.POSITION] = position + length
    local[LocalWord.TAIL] = number + 1
    publish(outlet, number + 1)
    return number


@kernel
def put_payload(
    data: Bytes, words: Words, control: Words, local: Words, bell: Words, bell_index: int, payload: Bytes, slot: int
) -> int:
    """Publish bytes as they are; their number in the ring, or -1 when there is no room now.

    An outlet taken apart: handing a kernel a tuple costs more than all it does here.
    """
    number = local[LocalWord.TAIL]
    position = room_at(control, words, data.size, number, local[LocalWord.POSITION], payload.size)
    if position < 0:
        return -1
    copy_bytes(data, position % data.size, payload, 0, payload.size)
    describe(words, number, position, payload.size, slot)
    local[LocalWord.POSITION] = position + payload.size
    local[LocalWord.TAIL] = number + 1
    publish(Outlet(data, words, control, local, bell, bell_index), number + 1)
    return number


@bare_kernel
def put_many(outlet: Outlet, template: Template, batch: Batch, first: int, until: int, born_ms: int) -> int:
    """Publish messages `first` to `until` of a batch, while there is room; the first one left."""
    data, local, bodies, properties = outlet.data, outlet.local, batch.bodies, batch.properties
    number, position = local[LocalWord.TAIL], local[LocalWord.POSITION]
    published, published_position = number, position
    k = first
    while k < until:
        of = 0 if batch.shared else k
        body = Span(bodies.data, bodies.ends[k], bodies.ends[k + 1] - bodies.ends[k])
        own = Span(properties.data, properties.ends[of], properties.ends[of + 1] - properties.ends[of])
        length = template.record.size + body.size + own.size
        start = room_at(outlet.control, outlet.words, data.size, number, position, length)
        if start < 0:
            break
        _write(data, start % data.size, template, body, own, born_ms)
        if batch.unique_at >= 0:
            properties_at = start % data.size + length - own.size
            write_hexadecimal(data, properties_at + batch.unique_at, batch.unique_first + k, UNIQUE_DIGITS)
        describe(outlet.words, number, start, length, template.slot)
        number += 1
        k += 1
        position = start + length
        if number - published >= PUBLISH_RECORDS or position - published_position >= PUBLISH_BYTES:
            publish(outlet, number)
            published, published_position = number, position
    local[LocalWord.TAIL], local[LocalWord.POSITION] = number, position
    if number != published:
        publish(outlet, number)
    return k
