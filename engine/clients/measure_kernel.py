"""The compiled loops of a consumer that judge records: of a queue where they lie, or of a broker's answer.

Implements: MessageDecoder.decode, as far as it judges a record, PullAPIWrapper.processPullResult
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from enum import IntEnum

import numpy as np

from engine.protocol.pulling.select_kernel import is_matched
from ipc.arrays import Bytes, Words
from ipc.compiled.crc import crc32
from ipc.compiled.kernels import bare_kernel, kernel
from ipc.compiled.memory import load_be32, load_be64
from ipc.compiled.texts import same_bytes
from store.message import record
from store.message.measure import Spans
from store.message.measure_kernel import FIXED_BYTES, MAGIC_AT, SYS_FLAG_AT, measure, names_itself
from store.message.property_kernel import TAGS_NAME, find_value
from store.message.unit import Unit
from store.message.walk_kernel import Tags

MAGIC_V1, MAGIC_V2 = record.MAGIC_V1 - (1 << 32), record.MAGIC_V2 - (1 << 32)  # as load_be32 gives them: signed
BODY_CRC_AT, CRC_MASK = record.BODY_CRC_AT, record.CRC_MASK
QUEUE_OFFSET_AT = record.QUEUE_OFFSET_AT
INNER_BATCH = int(record.SysFlag.INNER_BATCH)


class Look(IntEnum):
    """Words of a look at units, or at a frame: what to look at, then what came of it."""

    FIRST = 0  # unit
    COUNT = 1  # of the units
    BASE_OFFSET = 2  # of the segment
    LOG_BEGINS = 3
    LOG_ENDS = 4
    LEAST = 5  # queue offset that is wanted of a frame
    NEXT = 6  # unit, or place in the frame, behind the last one that was judged
    PARTS = 7  # rows that were made
    IS_CORRUPT = 8  # 1: no sound record lies at NEXT
    BODY_BYTES = 9  # of the rows
    BATCHES = 10  # inner ones among the rows


class Part(IntEnum):
    """Columns of a record's row; positions are bytes from the beginning of its memory."""

    QUEUE_OFFSET = 0
    POSITION = 1
    BODY_AT = 2
    BODY_END = 3
    SYS_FLAG = 4


@bare_kernel
def _spans_of(array: Bytes, at: int, size: int) -> Spans:
    """The spans of the record of `size` bytes at `at`; a body before the array where no sound one lies there."""
    if size < FIXED_BYTES or load_be32(array, at) != size:
        return Spans(-1, -1, -1, -1, -1, -1)
    magic = load_be32(array, at + MAGIC_AT)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return Spans(-1, -1, -1, -1, -1, -1)
    spans = measure(array, at, size)
    body_bytes = spans.body_end - spans.body_at
    if spans.body_at < 0 or not body_bytes:
        return spans
    if crc32(array, spans.body_at, body_bytes) & CRC_MASK != load_be32(array, at + BODY_CRC_AT):
        return Spans(-1, -1, -1, -1, -1, -1)
    return spans


@bare_kernel
def _has_tags(array: Bytes, spans: Spans, tags: Tags) -> bool:
    """Whether the record's tags are one of these, byte by byte: tags can share a hash."""
    first, behind = find_value(array, spans.properties_at, spans.end, TAGS_NAME)
    for number in range(tags.ends.size - 1):
        at, count = tags.ends[number], tags.ends[number + 1] - tags.ends[number]
        if count == behind - first > 0 and same_bytes(array, first, tags.names, at, count):
            return True
    return False


@bare_kernel
def _add(array: Bytes, at: int, spans: Spans, tags: Tags, look: Words, parts: Words) -> bool:
    """Add the row of a sound record that has the tags, or is an inner batch; whether it does."""
    sys_flag = load_be32(array, at + SYS_FLAG_AT)
    is_batch = sys_flag & INNER_BATCH != 0
    if tags.ends.size and not is_batch and not _has_tags(array, spans, tags):
        return False
    row = parts[look[Look.PARTS]]
    look[Look.PARTS] += 1
    look[Look.BODY_BYTES] += spans.body_end - spans.body_at
    look[Look.BATCHES] += is_batch
    row[Part.QUEUE_OFFSET], row[Part.POSITION] = load_be64(array, at + QUEUE_OFFSET_AT), at
    row[Part.BODY_AT], row[Part.BODY_END], row[Part.SYS_FLAG] = spans.body_at, spans.body_end, sys_flag
    return True


@bare_kernel
def _begin(look: Words) -> None:
    look[Look.PARTS] = look[Look.IS_CORRUPT] = look[Look.BODY_BYTES] = look[Look.BATCHES] = 0


@kernel
def measure_units(array: Bytes, units: Words, codes: Words, tags: Tags, look: Words, parts: Words) -> None:
    """Go through units whose records lie in the segment `array`: a row for each one that has wanted tags.

    It ends at a unit whose record lies elsewhere, or is not sound. The unit says where in the queue its record is.
    """
    base_offset, index = look[Look.BASE_OFFSET], look[Look.FIRST]
    _begin(look)
    while index < look[Look.COUNT]:
        offset, size = units[index, Unit.PHYSICAL_OFFSET], units[index, Unit.SIZE]
        at = offset - base_offset
        if size <= 0 or offset < look[Look.LOG_BEGINS] or offset > look[Look.LOG_ENDS] - size:
            break
        if at < 0 or at > array.size - size:
            break
        if tags.ends.size == 0 or is_matched(units[index, Unit.TAGS_CODE], codes):
            spans = _spans_of(array, at, size)
            if spans.body_at < 0 or not names_itself(array, at, base_offset):
                look[Look.IS_CORRUPT] = 1
                break
            if _add(array, at, spans, tags, look, parts):
                parts[look[Look.PARTS] - 1, Part.QUEUE_OFFSET] = units[index, Unit.QUEUE_OFFSET]
        index += 1
    look[Look.NEXT] = index


@kernel
def measure_frame(array: Bytes, tags: Tags, look: Words, parts: Words) -> None:
    """Go through records one behind the other: a row for each one from queue offset LEAST on that has wanted tags.

    Offsets ascend: a message behind a later one is left out. An inner batch is taken wherever it begins. It ends where
    no sound record lies.
    """
    at, least = np.int64(0), look[Look.LEAST]
    _begin(look)
    while at <= array.size - FIXED_BYTES:
        size = load_be32(array, at)
        if size > array.size - at:
            break
        spans = _spans_of(array, at, size)
        if spans.body_at < 0:
            break
        queue_offset = load_be64(array, at + QUEUE_OFFSET_AT)
        if load_be32(array, at + SYS_FLAG_AT) & INNER_BATCH:
            _add(array, at, spans, tags, look, parts)
        elif queue_offset >= least:
            _add(array, at, spans, tags, look, parts)
            least = queue_offset + 1
        at += size
    look[Look.NEXT], look[Look.IS_CORRUPT] = at, at != array.size
