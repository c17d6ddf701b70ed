"""How a record's lengths add up, compiled: what `store.message.measure` says, with a number for the reason."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from enum import IntEnum

import numpy as np

from ipc.arrays import Bytes
from ipc.compiled.kernels import bare_kernel
from ipc.compiled.memory import load_be16, load_be32, load_be64
from store.message import measure as lengths
from store.message import record
from store.message.measure import Spans

FIXED_BYTES, V6_EXTRA_BYTES = record.FIXED_BYTES, record.V6_EXTRA_BYTES
MAGIC_AT, PHYSICAL_OFFSET_AT, SYS_FLAG_AT = record.MAGIC_AT, record.PHYSICAL_OFFSET_AT, record.SYS_FLAG_AT
STORE_TIMESTAMP_AT, BODY_LENGTH_AT = record.store_timestamp_at(0), record.body_length_at(0)  # with IPv4 hosts
BODY_LENGTH_BYTES, PROPERTIES_LENGTH_BYTES = lengths.BODY_LENGTH_BYTES, lengths.PROPERTIES_LENGTH_BYTES
BORN_HOST_V6, STORE_HOST_V6 = record.BORN_V6, record.STORE_V6
# as load_be32 gives them: signed
MAGIC_V1, MAGIC_V2, MAGIC_BLANK = (
    magic - (1 << 32) for magic in (record.MAGIC_V1, record.MAGIC_V2, record.BLANK_MAGIC)
)


class Fault(IntEnum):
    """What does not fit into a record: body or topic reach beyond it, or its parts do not add up to its size."""

    NONE, BODY, TOPIC, SIZE = 0, 1, 2, 3


BODY_FAULT, TOPIC_FAULT, SIZE_FAULT = int(Fault.BODY), int(Fault.TOPIC), int(Fault.SIZE)


@bare_kernel
def _faulty(fault: int) -> Spans:
    return Spans(-fault, -1, -1, -1, -1, -1)


@bare_kernel
def host_bytes(sys_flag: int) -> int:
    """Return by how much IPv6 hosts move what lies behind them."""
    extra = V6_EXTRA_BYTES if sys_flag & BORN_HOST_V6 else 0
    return extra + (V6_EXTRA_BYTES if sys_flag & STORE_HOST_V6 else 0)


@bare_kernel
def measure(array: Bytes, position: int, size: int) -> Spans:
    """The spans of the record of `size` bytes at `position`, which are there, and FIXED_BYTES in any case.

    If they do not add up, body_at is the Fault, negative.
    """
    extra = host_bytes(load_be32(array, position + SYS_FLAG_AT))
    if size < FIXED_BYTES + extra:
        return _faulty(BODY_FAULT)
    is_v2 = load_be32(array, position + MAGIC_AT) == MAGIC_V2
    end, body_at = position + size, position + BODY_LENGTH_AT + extra + BODY_LENGTH_BYTES
    body_bytes = load_be32(array, body_at - BODY_LENGTH_BYTES)
    body_end = body_at + body_bytes
    if body_bytes < 0 or body_end + 1 + PROPERTIES_LENGTH_BYTES > end:
        return _faulty(BODY_FAULT)
    topic_at = body_end + 1 + is_v2
    topic_bytes = load_be16(array, body_end) if is_v2 else np.int64(np.int8(array[body_end]))
    topic_end = topic_at + topic_bytes
    properties_at = topic_end + PROPERTIES_LENGTH_BYTES
    if topic_bytes < 0 or properties_at > end:
        return _faulty(TOPIC_FAULT)
    properties_bytes = load_be16(array, topic_end)
    if properties_bytes < 0 or properties_at + properties_bytes != end:
        return _faulty(SIZE_FAULT)
    return Spans(body_at, body_end, topic_at, topic_end, properties_at, end)


@bare_kernel
def names_itself(array: Bytes, position: int, base_offset: int) -> bool:
    """Whether the record at `position` says that it lies there."""
    return load_be64(array, position + PHYSICAL_OFFSET_AT) == base_offset + position


@bare_kernel
def store_timestamp(array: Bytes, position: int) -> int:
    """Return when the record at `position` was stored, in ms."""
    extra = V6_EXTRA_BYTES if load_be32(array, position + SYS_FLAG_AT) & BORN_HOST_V6 else 0
    return load_be64(array, position + STORE_TIMESTAMP_AT + extra)
