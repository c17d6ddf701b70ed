"""Confluent's wire form: a body that begins with the number of the schema by which it was written.

One byte 0, four bytes with the number, the value. Protobuf has a list of numbers before its value: which of the
schema's messages it is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

HEAD = struct.Struct(">BI")
MAGIC = 0
SCHEMA_ID_MAX = 2**31 - 1
INDEXES_MAX = 64  # messages inside each other
VARINT_BYTES_MAX = 5

Bad = Callable[[int, str], None]


class Framed(NamedTuple):
    """One body: by which schema it was written, and its value."""

    schema_id: int
    value: bytes


def framed(body: bytes) -> Framed:
    """Split a body into schema number and content. Raises ValueError."""
    if len(body) < HEAD.size:
        raise ValueError(f"{len(body)} bytes, too short for a schema's number: not in a registry's wire form")
    magic, schema_id = HEAD.unpack_from(body)
    if magic != MAGIC:
        raise ValueError(f"it begins with byte {magic}, not {MAGIC}: not in a registry's wire form")
    if schema_id > SCHEMA_ID_MAX:
        raise ValueError(f"schema {schema_id}: not a schema number")
    return Framed(schema_id, body[HEAD.size :])


def message_indexes(value: bytes) -> tuple[tuple[int, ...], bytes]:
    """The list before a Protobuf value, and the rest. Raises ValueError."""
    count, at = _varint(value, 0)
    if count == 0:
        return (0,), value[at:]
    if not 0 < count <= INDEXES_MAX:
        raise ValueError(f"a list of {count} message indexes, 1 to {INDEXES_MAX} are possible")
    indexes = []
    for _ in range(count):
        index, at = _varint(value, at)
        if index < 0:
            raise ValueError(f"message index {index}")
        indexes.append(index)
    return tuple(indexes), value[at:]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in Protobuf's signed form (zigzag), and where it ends."""
    number = 0
    for place in range(VARINT_BYTES_MAX):
        if at >= len(data):
            raise ValueError("it ends inside of its message indexes")
        number |= (data[at] & 0x7F) << (7 * place)
        at += 1
        if not data[at - 1] & 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise ValueError("a message index that does not end")
