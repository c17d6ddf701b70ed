"""Several messages as one body: the batch that a client sends, and the inner batch that a 5.x broker keeps whole.

Implements: MessageDecoder.decodeMessages, decodeMessage, countInnerMsgNum (spec: store-formats, 5)
A message in a batch: size (4), magic and CRC (4 + 4, zeros), flag (4), body length (4), body, properties length (2),
properties. RocketMQ reads by the lengths of body and properties and counts by the sizes: here both have to agree.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from store.errors import MalformedData
from store.message.compression import MAX_BODY_BYTES, body_of
from store.message.delay import JAVA_INTEGER
from store.message.properties import INNER_BASE
from store.message.record import (
    BODY_CRC_AT,
    COMPRESSION_MASK,
    CRC_MASK,
    FLAG_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    Message,
    SysFlag,
    body_length_at,
)

_HEAD = struct.Struct(">iiiii")  # size, magic, crc, flag, body length
_PROPERTIES_LENGTH = struct.Struct(">h")
_INT32, _INT64 = struct.Struct(">i"), struct.Struct(">q")
ITEM_BYTES_MIN = _HEAD.size + _PROPERTIES_LENGTH.size
_NOT_INSIDE = int(SysFlag.COMPRESSED | SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH) | COMPRESSION_MASK


class BatchItem(NamedTuple):
    """One message of a batch; all else it shares with the others."""

    flag: int
    body: bytes | memoryview
    properties: bytes


def decode_batch(body: bytes | memoryview, what: str = "batch") -> Iterator[BatchItem]:
    """The messages of a batch's body, which are views into it. Raises MalformedData, with `what` as its place."""
    view, at = memoryview(body), 0
    while at < len(view):
        if len(view) - at < ITEM_BYTES_MIN:
            raise MalformedData(what, f"{len(view) - at} bytes at {at} are less than a message")
        size, _magic, _crc, flag, body_bytes = _HEAD.unpack_from(view, at)
        properties_at = at + _HEAD.size + body_bytes + _PROPERTIES_LENGTH.size
        if body_bytes < 0 or properties_at > len(view):
            raise MalformedData(what, f"the message at {at} has a body of {body_bytes} bytes, the batch {len(view)}")
        (properties_bytes,) = _PROPERTIES_LENGTH.unpack_from(view, properties_at - _PROPERTIES_LENGTH.size)
        end = properties_at + properties_bytes
        if properties_bytes < 0 or end > len(view) or size != end - at:
            raise MalformedData(what, f"the message at {at} has size {size}, but its parts end at {end} of {len(view)}")
        yield BatchItem(flag, view[at + _HEAD.size : at + _HEAD.size + body_bytes], bytes(view[properties_at:end]))
        at = end


def messages_in(message: Message, max_bytes: int = MAX_BODY_BYTES) -> Iterator[Message]:
    """Yield what a consumer gets of a record: itself, or the messages of an inner batch.

    Each of these has its own queue offset.

    They share the record's place and times; the batch and compression bits are gone. Raises MalformedData, also for a
    batch that inflates to more than `max_bytes`.
    """
    if not message.sys_flag & SysFlag.INNER_BATCH:
        yield message
        return
    what = f"inner batch at offset {message.physical_offset}"
    base = message.properties.get(INNER_BASE, "")
    first = int(base) if JAVA_INTEGER(base) else message.queue_offset
    for number, item in enumerate(decode_batch(body_of(message.body, message.sys_flag, max_bytes), what)):
        yield replace(
            message,
            flag=item.flag,
            queue_offset=first + number,
            sys_flag=message.sys_flag & ~_NOT_INSIDE,
            body=item.body,
            body_crc=zlib.crc32(item.body) & CRC_MASK,
            properties_raw=item.properties,
        )


def records_in(view: memoryview, position: int, batch: Message) -> Iterator[bytes]:
    """The messages of the inner batch at `position` as records of their own. Raises MalformedData.

    Each is the batch's record, but for what the message inside has of its own.
    """
    body_length = body_length_at(batch.sys_flag)
    topic_at = position + body_length + _INT32.size + len(batch.body)
    topic_end = position + batch.total_size - len(batch.properties_raw) - _PROPERTIES_LENGTH.size
    for inner in messages_in(batch):
        head = bytearray(view[position : position + body_length + _INT32.size])
        lengths = _PROPERTIES_LENGTH.pack(len(inner.properties_raw))
        parts = (head, inner.body, view[topic_at:topic_end], lengths, inner.properties_raw)
        _INT32.pack_into(head, 0, sum(map(len, parts)))
        _INT32.pack_into(head, BODY_CRC_AT, inner.body_crc)
        _INT32.pack_into(head, FLAG_AT, inner.flag)
        _INT64.pack_into(head, QUEUE_OFFSET_AT, inner.queue_offset)
        _INT32.pack_into(head, SYS_FLAG_AT, inner.sys_flag)
        _INT32.pack_into(head, body_length, len(inner.body))
        yield b"".join(parts)
