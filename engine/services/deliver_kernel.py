"""Delayed messages as they are stored, turned into those to be delivered and put into a ring, compiled.

Implements: ScheduleMessageService.messageTimeup, the fast path
`examine` says of each stored record whether it takes the fast path: then its delivered one is the same bytes with
another topic and queue, and without what the writer fills in. What leaves it (names that are not ASCII, properties in
another order than a map has them, batches, timers, IPv6) is left to `store.put.resend.delivered` and
`store.put.draft.draft_of`, whose bytes these are: a test compares both.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from engine.producer.pipeline_kernel import note_sent
from engine.rings.encode_kernel import fill_in, flip_magic, publish
from engine.shared_memory.delay_table import OFFSET_BITS, ROW_WORDS, RowWord
from ipc.arrays import Bytes, Words
from ipc.compiled.crc import crc32
from ipc.compiled.kernels import inlined, kernel
from ipc.compiled.memory import copy_bytes, load_be32, store_be16, store_be32, store_be64
from ipc.compiled.texts import begins_with, is_text, whole_number
from ipc.ring import LocalWord, Outlet, describe, room_at
from store.message import hash_map
from store.message.hash_map import BUCKET_ENTRIES_MAX
from store.message.measure_kernel import measure
from store.message.properties import (
    INNER_PREFIX,
    MAX_PROPERTIES_BYTES,
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    PROPERTY_CRC,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
)
from store.message.record import (
    BODY_CRC_AT,
    CRC_MASK,
    FAMILIES,
    FIXED_BYTES,
    HOST_MASK,
    MAGIC_AT,
    MAGIC_V1,
    MAX_TOPIC_BYTES,
    QUEUE_ID_AT,
    SYS_FLAG_AT,
    TRANSACTION_MASK,
    SysFlag,
)

PREPARED_OFFSET_AT = FAMILIES[0].body_length_at - 8
MAGIC = MAGIC_V1 - (1 << 32)  # as a signed number of 32 bits
SLOW_FLAGS = int(TRANSACTION_MASK | HOST_MASK | SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH)
IN_NAME, IN_PAIR = ord(NAME_SEPARATOR), ord(PAIR_SEPARATOR)
TOPIC_NAME, QUEUE_NAME = (np.frombuffer(name.encode(), np.uint8) for name in (REAL_TOPIC, REAL_QUEUE_ID))
UNUSUAL_NAMES = tuple(
    np.frombuffer(name.encode(), np.uint8) for name in (INNER_PREFIX, PROPERTY_CRC, TIMER_DELAY_MS.partition("_")[0])
)
INNER_NAME, CRC_NAME, TIMER_NAME = UNUSUAL_NAMES
DIGITS_MAX = 9
folded, outgrows = inlined(hash_map.folded), inlined(hash_map.outgrows)


class Noted(NamedTuple):
    """What is noted of a record in the ring: its puts row, the bytes under way, and what lies under its number."""

    table: Words  # SentWord
    state: Words  # StateWord
    journal: Words  # RowWord


class Row(IntEnum):
    """The columns of a stored record's row: places are positions in its segment."""

    POSITION = 0
    SIZE = 1
    IS_FAST = 2
    HEAD_BYTES = 3  # up to the body's end
    TOPIC_AT = 4  # of the topic that it is delivered to
    TOPIC_BYTES = 5
    QUEUE_ID = 6
    PROPERTIES_AT = 7
    PROPERTIES_BYTES = 8
    LENGTH = 9  # of the delivered record
    SLOT = 10  # filled by the role that asks the writer
    QUEUE_OFFSET = 11  # in the level's queue; filled by who reads it


COLUMNS = len(Row)


@inlined
def _read_properties(
    data: Bytes, at: int, end: int, rows: Words, row: int, capacity: int, trailing: bool, hashes: Words
) -> bool:
    """Find where it is delivered to; whether a map of this capacity would write the properties just so. `hashes` has
    room for those of the names in a bucket."""
    if at == end or (data[end - 1] == IN_PAIR) != trailing:
        return False
    stop = end - 1 if trailing else end
    count, bucket, chain = 0, 0, 0
    while at < stop:
        name_at, code = at, 0
        while at < stop and data[at] != IN_NAME:
            if data[at] >= 0x80 or data[at] == IN_PAIR:
                return False
            code = (code * 31 + data[at]) & 0xFFFFFFFF
            at += 1
        name_end = at
        at += 1
        value_at = at
        while at < stop and data[at] != IN_PAIR:
            if data[at] >= 0x80:
                return False
            at += 1
        if name_end == name_at or value_at >= at:
            return False
        code = folded(code)
        own = code & (capacity - 1)
        if own < bucket:
            return False
        if own > bucket:
            bucket, chain = own, 0
        if chain >= BUCKET_ENTRIES_MAX - 1:
            return False
        for k in range(chain):
            if hashes[k] == code:
                return False
        hashes[chain] = code
        chain += 1
        count += 1
        if (
            begins_with(data, name_at, name_end, INNER_NAME)
            or begins_with(data, name_at, name_end, CRC_NAME)
            or begins_with(data, name_at, name_end, TIMER_NAME)
        ):
            return False
        if is_text(data, name_at, name_end - name_at, TOPIC_NAME):
            rows[row + Row.TOPIC_AT], rows[row + Row.TOPIC_BYTES] = value_at, at - value_at
        if is_text(data, name_at, name_end - name_at, QUEUE_NAME):
            rows[row + Row.QUEUE_ID] = whole_number(data, value_at, at - value_at, DIGITS_MAX)
        at += 1
    return not outgrows(count, capacity)


@inlined
def _is_fast(data: Bytes, rows: Words, row: int, capacity: int, trailing: bool, body_max: int, hashes: Words) -> bool:
    """Look at one record; the caller knows that `size` bytes are there."""
    at, size = rows[row + Row.POSITION], rows[row + Row.SIZE]
    if size < FIXED_BYTES or load_be32(data, at) != size or load_be32(data, at + MAGIC_AT) != MAGIC:
        return False
    if load_be32(data, at + SYS_FLAG_AT) & SLOW_FLAGS:
        return False
    spans = measure(data, at, size)
    body_bytes, properties_bytes = spans.body_end - spans.body_at, spans.end - spans.properties_at
    if spans.body_at < 0 or not 0 < body_bytes <= body_max:
        return False
    if crc32(data, spans.body_at, body_bytes) & CRC_MASK != load_be32(data, at + BODY_CRC_AT):
        return False
    rows[row + Row.HEAD_BYTES], rows[row + Row.PROPERTIES_AT] = spans.body_end - at, spans.properties_at
    rows[row + Row.PROPERTIES_BYTES], rows[row + Row.TOPIC_BYTES], rows[row + Row.QUEUE_ID] = properties_bytes, 0, -1
    if not _read_properties(data, spans.properties_at, spans.end, rows, row, capacity, trailing, hashes):
        return False
    if rows[row + Row.QUEUE_ID] < 0 or not 0 < rows[row + Row.TOPIC_BYTES] <= MAX_TOPIC_BYTES:
        return False
    rows[row + Row.LENGTH] = rows[row + Row.HEAD_BYTES] + 1 + rows[row + Row.TOPIC_BYTES] + 2 + properties_bytes
    return properties_bytes <= MAX_PROPERTIES_BYTES


@kernel
def examine(data: Bytes, rows: Words, count: int, capacity: int, trailing: bool, body_max: int) -> None:
    """Fill `count` rows, one behind the other, of which POSITION and SIZE are known."""
    hashes = np.empty(BUCKET_ENTRIES_MAX, np.int64)  # here, since a piece of a kernel may not own an array
    for k in range(count):
        row = k * COLUMNS
        rows[row + Row.IS_FAST] = 0
        at, size = rows[row + Row.POSITION], rows[row + Row.SIZE]
        if at >= 0 and 0 <= size <= data.size - at and _is_fast(data, rows, row, capacity, trailing, body_max, hashes):
            rows[row + Row.IS_FAST] = 1


@inlined
def write_delivered(target: Bytes, to: int, data: Bytes, rows: Words, row: int) -> None:
    """Write one delivered record at `to`, its magic number as rings have it."""
    at, head = rows[row + Row.POSITION], rows[row + Row.HEAD_BYTES]
    copy_bytes(target, to, data, at, head)
    store_be32(target, to, rows[row + Row.LENGTH])
    flip_magic(target, to)
    store_be32(target, to + QUEUE_ID_AT, rows[row + Row.QUEUE_ID])
    fill_in(target, to, 0, 0, 0)
    store_be64(target, to + PREPARED_OFFSET_AT, 0)
    topic_bytes, properties_bytes = rows[row + Row.TOPIC_BYTES], rows[row + Row.PROPERTIES_BYTES]
    target[to + head] = topic_bytes
    copy_bytes(target, to + head + 1, data, rows[row + Row.TOPIC_AT], topic_bytes)
    store_be16(target, to + head + 1 + topic_bytes, properties_bytes)
    copy_bytes(target, to + head + 3 + topic_bytes, data, rows[row + Row.PROPERTIES_AT], properties_bytes)


@kernel
def deliver(
    outlet: Outlet, data: Bytes, rows: Words, first: int, until: int, level: int, noted: Noted, now_ns: int
) -> int:
    """Publish the delivered records of fast rows `first` to `until`, while there is room; the first one left.

    The caller has seen that `table` has room for so many. `journal` says what lies under each number before it counts.
    """
    local, journal = outlet.local, noted.journal
    notes = journal.size // ROW_WORDS
    number, position, k = local[LocalWord.TAIL], local[LocalWord.POSITION], first
    while k < until:
        row = k * COLUMNS
        length = rows[row + Row.LENGTH]
        start = room_at(outlet.control, outlet.words, outlet.data.size, number, position, length)
        if start < 0:
            break
        write_delivered(outlet.data, start % outlet.data.size, data, rows, row)
        describe(outlet.words, number, start, length, rows[row + Row.SLOT])
        note_sent(noted.table, noted.state, number, length, 0, 0, now_ns)
        note = number % notes * ROW_WORDS
        journal[note + RowWord.ENTRY] = level << OFFSET_BITS | rows[row + Row.QUEUE_OFFSET]
        journal[note + RowWord.NUMBER] = number
        number, position, k = number + 1, start + length, k + 1
    if k > first:
        local[LocalWord.TAIL], local[LocalWord.POSITION] = number, position
        publish(outlet, number)
    return k
