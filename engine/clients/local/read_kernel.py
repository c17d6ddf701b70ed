"""The compiled loops of a consumer on the broker's host: judge a queue's records where they lie, and sleep.

Implements: MessageDecoder.decode, as far as it judges a record
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from enum import IntEnum

import numpy as np

from engine.protocol.pulling.select_kernel import is_matched
from engine.shared_memory.queue_table import TableWord
from ipc.arrays import Bytes, Words
from ipc.compiled.atomics import Followed, await_change, load_acquire, monotonic_ns
from ipc.compiled.crc import crc32
from ipc.compiled.kernels import bare_kernel, kernel
from ipc.compiled.memory import load_be32
from store.message import record
from store.message.measure_kernel import FIXED_BYTES, MAGIC_AT, SYS_FLAG_AT, measure, names_itself
from store.message.unit import Unit

MAGIC_V1, MAGIC_V2 = record.MAGIC_V1 - (1 << 32), record.MAGIC_V2 - (1 << 32)  # as load_be32 gives them: signed
BODY_CRC_AT, CRC_MASK = record.BODY_CRC_AT, record.CRC_MASK
NAP_NS = 50_000  # behind a message of another queue: the dispatcher is not asked to wake us for each of them


class Look(IntEnum):
    """Words of a look at units: what to look at, then what came of it."""

    FIRST = 0
    COUNT = 1  # of the units
    BASE_OFFSET = 2  # of the segment
    LOG_BEGINS = 3
    LOG_ENDS = 4
    TAKES_ALL = 5  # 1: any tags
    NEXT = 6  # unit behind the last one that was judged
    PARTS = 7  # rows that were made
    IS_CORRUPT = 8  # 1: the unit NEXT does not lead to a sound record


class Part(IntEnum):
    """Columns of a record's row; positions are bytes from the segment's beginning."""

    QUEUE_OFFSET = 0
    POSITION = 1
    BODY_AT = 2
    BODY_END = 3
    SYS_FLAG = 4


@bare_kernel
def _measure_record(array: Bytes, at: int, size: int, base_offset: int, row: Words) -> bool:
    """Fill the row of the record of `size` bytes at `at`; False where no sound one lies there."""
    magic = load_be32(array, at + MAGIC_AT)
    if size < FIXED_BYTES or load_be32(array, at) != size or (magic != MAGIC_V1 and magic != MAGIC_V2):
        return False
    spans = measure(array, at, size)
    if spans.body_at < 0 or not names_itself(array, at, base_offset):
        return False
    body_bytes = spans.body_end - spans.body_at
    if body_bytes and crc32(array, spans.body_at, body_bytes) & CRC_MASK != load_be32(array, at + BODY_CRC_AT):
        return False
    row[Part.POSITION], row[Part.BODY_AT], row[Part.BODY_END] = at, spans.body_at, spans.body_end
    row[Part.SYS_FLAG] = load_be32(array, at + SYS_FLAG_AT)
    return True


@kernel
def measure_units(array: Bytes, units: Words, codes: Words, look: Words, parts: Words) -> None:
    """Go through units whose records lie in the segment `array`: a row for each one that has wanted tags.

    It ends at a unit whose record lies elsewhere, or is not sound.
    """
    base_offset, index, made = look[Look.BASE_OFFSET], look[Look.FIRST], 0
    look[Look.IS_CORRUPT] = 0
    while index < look[Look.COUNT]:
        offset, size = units[index, Unit.PHYSICAL_OFFSET], units[index, Unit.SIZE]
        at = offset - base_offset
        if size <= 0 or offset < look[Look.LOG_BEGINS] or offset > look[Look.LOG_ENDS] - size:
            break
        if at < 0 or at > array.size - size:
            break
        if look[Look.TAKES_ALL] or is_matched(units[index, Unit.TAGS_CODE], codes):
            if not _measure_record(array, at, size, base_offset, parts[made]):
                look[Look.IS_CORRUPT] = 1
                break
            parts[made, Part.QUEUE_OFFSET] = units[index, Unit.QUEUE_OFFSET]
            made += 1
        index += 1
    look[Look.NEXT], look[Look.PARTS] = index, made


class Watch(IntEnum):
    """Words of a watch: the number of calls and that of queues when it began, then a slot and an end for each."""

    CALLS = 0
    USED = 1
    QUEUES = 2


@kernel
def has_more(table: Words, watch: Words) -> bool:
    """Whether a watched queue ends behind its end, or a queue is new."""
    if load_acquire(table, TableWord.USED) > watch[Watch.USED]:
        return True
    for k in range(Watch.QUEUES, watch.size, 2):
        if load_acquire(table, TableWord.NEXT_OFFSETS + watch[k]) > watch[k + 1]:
            return True
    return False


@kernel
def await_entries(followed: Words, index: int, table: Words, calls: Words, watch: Words, timeout_ns: int) -> bool:
    """Sleep until `has_more`: True. False: the sleeper was called, the time is over, or a signal arrives.

    `followed` is reput_from_offset, which moves behind the ends in `table`.
    """
    until_ns, nothing = monotonic_ns() + timeout_ns, np.zeros(Followed.WAITERS + 1, np.int64)
    while True:
        seen = load_acquire(followed, index)
        if has_more(table, watch):
            return True
        left_ns = until_ns - monotonic_ns()
        if left_ns <= 0 or load_acquire(calls, 0) != watch[Watch.CALLS]:
            return False
        if await_change(followed, index, seen, left_ns) == seen:
            return False
        if not has_more(table, watch):
            await_change(nothing, 0, 0, NAP_NS)
