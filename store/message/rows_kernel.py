"""The compiled loop over records: arrays in, arrays out, nothing per record in Python.

Implements: CommitLog.checkMessageAndReturnSize, for dispatch and recovery (spec: store-formats, 1, 8, 20)
`scan` makes a row for every record it passes, and checks all its lengths; readers use `walk_kernel`.

Rows are int64. Body CRCs are not looked at here: recovery checks them over the rows.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ipc.arrays import Bytes, Words
from ipc.compiled.crc import crc32
from ipc.compiled.kernels import bare_kernel, kernel
from ipc.compiled.memory import load_be32, load_be64
from ipc.compiled.texts import begins_with, is_text
from store.message import delay, properties, record
from store.message.measure_kernel import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, measure, names_itself, store_timestamp
from store.message.property_kernel import NAME_SEPARATOR, PAIR_SEPARATOR, TAGS_NAME


class Row(IntEnum):
    """Columns of a row; positions are bytes from the segment's beginning."""

    POSITION, SIZE, BODY_AT, BODY_BYTES, BODY_CRC, TOPIC_AT, TOPIC_BYTES = 0, 1, 2, 3, 4, 5, 6
    QUEUE_ID, QUEUE_OFFSET, SYS_FLAG, STORE_TIMESTAMP = 7, 8, 9, 10
    TAGS_CODE, TAGS_AT, TAGS_BYTES = 11, 12, 13  # TAGS_AT below 0: a delay level, the code its usual time of delivery
    GROUP, SPECIAL = 14, 15


class Special(IntEnum):
    """Bits of SPECIAL: what Python has to look at."""

    TAGS_NOT_ASCII, INNER_PROPERTIES = 1, 2


class Scanned(NamedTuple):
    """The bytes of a segment, the log offset of the first one, and the rows of its records."""

    array: Bytes
    base_offset: int
    rows: Words


class ScanStop(IntEnum):
    """Reasons why a scan stopped."""

    LIMIT, ROWS_FULL, BLANK, PARTIAL, NO_RECORD, DAMAGED = 0, 1, 2, 3, 4, 5


MAGIC_FIRST_BYTE = record.MAGIC_V1 >> 24  # the same in both versions
FIXED_BYTES, BLANK_BYTES, CRC_MASK = record.FIXED_BYTES, record.BLANK_BYTES, record.CRC_MASK
MAGIC_AT, BODY_CRC_AT, QUEUE_ID_AT = record.MAGIC_AT, record.BODY_CRC_AT, record.QUEUE_ID_AT
QUEUE_OFFSET_AT, SYS_FLAG_AT = record.QUEUE_OFFSET_AT, record.SYS_FLAG_AT
P1, P2, P3, P4 = 31, 31**2, 31**3, 31**4
PLUS, ZERO = ord("+"), ord("0")
INNER_PREFIX = np.frombuffer(properties.INNER_PREFIX.encode(), np.uint8)
DELAY_NAME = np.frombuffer(properties.DELAY.encode(), np.uint8)
SCHEDULE_TOPIC = np.frombuffer(delay.SCHEDULE_TOPIC.encode(), np.uint8)
DELAY_MS = np.array((0, *delay.DELAYS_MS), np.int64)  # index = level
DELAY_LEVEL_MAX, LEVEL_MAX = len(delay.DELAYS_MS), 1000


@bare_kernel
def hash_on(code: int, array: Bytes, at: int, end: int) -> int:
    """Java's hash, in the lower 32 bits, of a text that goes on with the bytes [at, end); four are done at a time."""
    while end - at >= 4:
        code = code * P4 + int(array[at]) * P3 + int(array[at + 1]) * P2 + int(array[at + 2]) * P1 + int(array[at + 3])
        at += 4
    for i in range(at, end):
        code = code * P1 + int(array[i])
    return code


@bare_kernel
def _delay_level(array: Bytes, at: int, count: int) -> int:
    """The decimal number there, at most LEVEL_MAX; 0 for what is not a positive number."""
    level = 0
    first = at + 1 if count > 1 and array[at] == PLUS else at
    for i in range(first, at + count):
        digit = int(array[i]) - ZERO
        if digit < 0 or digit > 9:
            return 0
        level = min(level * 10 + digit, LEVEL_MAX)
    return level


@bare_kernel
def _tags(array: Bytes, start: int, end: int, row: Words, is_schedule: bool) -> None:
    """Find TAGS in the properties [start, end) and fill TAGS_CODE; note in SPECIAL when names begin with INNER_.

    A value that is not ASCII leaves its place in TAGS_AT: its hash is over UTF-16 units, which Python computes.
    A later pair wins over an earlier one; pairs without a name or a value do not count.
    """
    delay_level = 0
    at = start
    while at < end:
        equals, stop, plain = -1, at, True
        while stop < end and array[stop] != PAIR_SEPARATOR:
            if equals < 0 and array[stop] == NAME_SEPARATOR:
                equals, plain = stop, True
            elif array[stop] >= 128:
                plain = False
            stop += 1
        if equals > at and equals < stop - 1:
            value_bytes = stop - equals - 1
            if is_text(array, at, equals - at, TAGS_NAME):
                row[Row.TAGS_CODE] = np.int32(hash_on(0, array, equals + 1, stop)) if plain else 0
                row[Row.TAGS_AT], row[Row.TAGS_BYTES] = equals + 1, 0 if plain else value_bytes
                if not plain:
                    row[Row.SPECIAL] |= Special.TAGS_NOT_ASCII
            elif equals - at > len(INNER_PREFIX) and begins_with(array, at, equals, INNER_PREFIX):
                row[Row.SPECIAL] |= Special.INNER_PROPERTIES
            elif is_schedule and is_text(array, at, equals - at, DELAY_NAME):
                delay_level = _delay_level(array, equals + 1, value_bytes)
        at = stop + 1
    if delay_level > 0:  # the queue of a delay level holds the time of delivery instead
        row[Row.TAGS_CODE] = row[Row.STORE_TIMESTAMP] + DELAY_MS[min(delay_level, DELAY_LEVEL_MAX)]
        row[Row.TAGS_AT], row[Row.TAGS_BYTES] = -delay_level, 0


@bare_kernel
def _fill(array: Bytes, position: int, base_offset: int, row: Words) -> bool:
    """Make the row of the record at `position`, which has `row[SIZE]` bytes; False when it contradicts itself."""
    spans = measure(array, position, row[Row.SIZE])
    if spans.body_at < 0 or not names_itself(array, position, base_offset):
        return False
    row[Row.POSITION], row[Row.BODY_AT], row[Row.BODY_BYTES] = position, spans.body_at, spans.body_end - spans.body_at
    row[Row.BODY_CRC] = load_be32(array, position + BODY_CRC_AT)
    row[Row.TOPIC_AT], row[Row.TOPIC_BYTES] = spans.topic_at, spans.topic_end - spans.topic_at
    row[Row.QUEUE_ID] = load_be32(array, position + QUEUE_ID_AT)
    row[Row.QUEUE_OFFSET] = load_be64(array, position + QUEUE_OFFSET_AT)
    row[Row.SYS_FLAG] = load_be32(array, position + SYS_FLAG_AT)
    row[Row.STORE_TIMESTAMP] = store_timestamp(array, position)
    row[Row.TAGS_CODE], row[Row.TAGS_AT], row[Row.TAGS_BYTES], row[Row.GROUP], row[Row.SPECIAL] = 0, 0, 0, -1, 0
    is_schedule = is_text(array, spans.topic_at, spans.topic_end - spans.topic_at, SCHEDULE_TOPIC)
    _tags(array, spans.properties_at, spans.end, row, is_schedule)
    return True


@bare_kernel
def scan(array: Bytes, start: int, limit: int, base_offset: int, rows: Words) -> tuple[int, int, ScanStop]:
    """Rows of the records from `start` on: (position behind the last whole one, how many, why it stopped).

    Bytes at and above `limit` are not looked at. A blank record ends the segment (BLANK); PARTIAL: the bytes below
    `limit` may be the beginning of a record; NO_RECORD: no record begins here; DAMAGED: one does, but its size, lengths
    or physical offset are wrong (its claimed size is then in rows[count, Row.SIZE]), or a blank one that does not end
    where the segment does.
    """
    position, count = start, 0
    while True:
        if position == limit:
            return position, count, ScanStop.LIMIT
        if count == len(rows):
            return position, count, ScanStop.ROWS_FULL
        rest = limit - position
        if rest < BLANK_BYTES:
            return position, count, ScanStop.PARTIAL
        size, magic = load_be32(array, position), load_be32(array, position + MAGIC_AT)
        if magic == MAGIC_BLANK and size == len(array) - position:
            return position, count, ScanStop.BLANK
        if magic == MAGIC_BLANK:
            rows[count][Row.SIZE] = size
            return position, count, ScanStop.DAMAGED
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            return position, count, ScanStop.NO_RECORD
        row = rows[count]
        row[Row.SIZE] = size
        if size < FIXED_BYTES or position + size > len(array):
            return position, count, ScanStop.DAMAGED
        if size > rest:
            return position, count, ScanStop.PARTIAL
        if not _fill(array, position, base_offset, row):
            return position, count, ScanStop.DAMAGED
        position += size
        count += 1


@kernel
def find_record(array: Bytes, start: int, end: int, base_offset: int, rows: Words) -> int:
    """The first position in [start, end) where a whole record begins that names this very position; -1 without one.

    Its row is rows[0]. This distinguishes bit rot (something valid behind it) from a torn tail (nothing).
    """
    limit = len(array)
    for position in range(start, min(end, limit - FIXED_BYTES + 1)):
        if array[position + MAGIC_AT] != MAGIC_FIRST_BYTE:
            continue
        magic = load_be32(array, position + MAGIC_AT)
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            continue
        size = load_be32(array, position)
        rows[0, Row.SIZE] = size
        if size >= FIXED_BYTES and position + size <= limit and _fill(array, position, base_offset, rows[0]):
            return position
    return -1


@kernel
def first_bad_crc(array: Bytes, rows: Words, count: int) -> int:
    """The first of these rows whose body is not what its CRC says; -1 without one."""
    for index in range(count):
        row = rows[index]
        body_bytes = row[Row.BODY_BYTES]
        if body_bytes != 0 and crc32(array, row[Row.BODY_AT], body_bytes) & CRC_MASK != row[Row.BODY_CRC]:
            return index
    return -1
