"""The compiled walk from record to record, for readers of logs: which are wanted, and their fields as columns.

Implements: CommitLog.checkMessageAndReturnSize, for readers (spec: store-formats, 1, 8, 20)
`walk` begins where a record certainly begins and follows sizes; `collect` looks at places that an index names. Both
write the heads of the records that are wanted, and look at no more of the others than it takes to know that. `measure`
says where a record's parts lie. Columns are int64, a row of a matrix each; positions are bytes from the array's start.

A scan for recovery and dispatch is another one: `rows_kernel.scan` checks all lengths, and ends at the first fault.
"""

# mypy: disable-error-code="no-any-return,return-value"

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ipc.arrays import Bytes, Int32s, Words
from ipc.compiled.atomics import address_of
from ipc.compiled.kernels import bare_kernel, kernel
from ipc.compiled.memory import load_be32, load_be64, prefetch
from ipc.compiled.texts import is_text, name_hash, same_bytes
from store.message import record
from store.message.measure_kernel import (
    BODY_FAULT,
    BODY_LENGTH_AT,
    BODY_LENGTH_BYTES,
    FIXED_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    host_bytes,
    measure,
    names_itself,
    store_timestamp,
)
from store.message.property_kernel import TAGS_NAME, find_value

MAGIC_AT, SYS_FLAG_AT, PHYSICAL_OFFSET_AT = record.MAGIC_AT, record.SYS_FLAG_AT, record.PHYSICAL_OFFSET_AT
QUEUE_ID_AT, QUEUE_OFFSET_AT, BORN_TIMESTAMP_AT = record.QUEUE_ID_AT, record.QUEUE_OFFSET_AT, record.BORN_TIMESTAMP_AT
BLANK_BYTES = record.BLANK_BYTES
HEAD_BYTES = PHYSICAL_OFFSET_AT + 8  # what says whether a record begins here
INNER_BATCH = int(record.SysFlag.INNER_BATCH)
LETTERS_BYTES = 4  # by which most topics are known not to be looked up
# Where heads lie a kilobyte apart the CPU does not see that memory is read in order: it is asked for the bytes ahead.
AHEAD_BYTES, LINE_BYTES, NEAR_BYTES = 4096, 64, 4096


class Head(IntEnum):
    """Columns of a record's head. BODY_BYTES is -1 where the body would reach beyond the record."""

    START, SIZE, SYS_FLAG, QUEUE_ID, QUEUE_OFFSET, BORN_MS, STORED_MS, BODY_AT, BODY_BYTES = 0, 1, 2, 3, 4, 5, 6, 7, 8


class Part(IntEnum):
    """Columns of what lies behind the body. Where FAULT is not 0 the others say nothing."""

    TOPIC_AT, TOPIC_BYTES, PROPERTIES_AT, PROPERTIES_BYTES, FAULT = 0, 1, 2, 3, 4


class Limited(IntEnum):
    """Pairs of `Wanted.limits`: the first and the last value that is wanted of each."""

    QUEUE_OFFSET, PHYSICAL_OFFSET, STORED_MS, BORN_MS, BODY_BYTES = 0, 2, 4, 6, 8


class WalkStop(IntEnum):
    """Reasons why a walk stopped.

    END: at its end, at a blank record, or where the array ends inside a record. FULL: more are wanted than there is
    room for. NEW_TOPIC: somebody has to say whether the topic of the record here is wanted. NO_RECORD: none begins
    here, or it reaches beyond its segment. FAULTY: its lengths do not add up, so its topic cannot be read.
    """

    END, FULL, NEW_TOPIC, NO_RECORD, FAULTY = 0, 1, 2, 3, 4


class Asked(IntEnum):
    """Topics that are looked up: none, those that begin with some letters, all."""

    NONE, BEGINNING_SO, ALL = 0, 1, 2


class TopicColumn(IntEnum):
    """Columns of a known topic: where its name is among the names, its bytes, and 1 if the topic is wanted."""

    AT, BYTES, IS_WANTED = 0, 1, 2


class Topics(NamedTuple):
    """The topics that are known to be wanted or not: names one behind the other, and a hash table of number + 1."""

    asked: int  # see Asked
    beginnings: Words  # four bytes each, as a signed number
    places: Words  # a row of `TopicColumn` each
    names: Bytes
    table: Words  # a power of two, larger than their number


class Tags(NamedTuple):
    """Tags that are wanted, one behind the other, and where they end, behind a 0; no ends: all."""

    names: Bytes
    ends: Words


class Wanted(NamedTuple):
    """Records that are wanted: without any of these flags, of these queues, inside the limits, of wanted topics, tags.

    Limits and tags do not hold for an inner batch: its messages have their own. A body that reaches beyond its record
    has no length, which is for its reader to tell.
    """

    without_flags: int
    queue_ids: Words  # ascending; none: all
    limits: Words  # see Limited; none: no limits
    topics: Topics
    tags: Tags


NO_NUMBERS = np.zeros(0, np.int64)
NO_TOPICS = Topics(
    int(Asked.NONE), NO_NUMBERS, np.zeros((1, len(TopicColumn)), np.int64), np.zeros(1, np.uint8), np.zeros(1, np.int64)
)
ALL_TAGS = Tags(np.frombuffer(b"-", np.uint8), NO_NUMBERS)
EVERY_RECORD = Wanted(0, NO_NUMBERS, NO_NUMBERS, NO_TOPICS, ALL_TAGS)


class Stretch(NamedTuple):
    """The records to be read: they begin in [first, end) of a segment of that size, which begins at that log offset."""

    first: int
    end: int
    segment_bytes: int
    base_offset: int


class Named(NamedTuple):
    """Entries of one queue: the positions, sizes and queue offsets of the records that they name."""

    positions: Words
    sizes: Int32s
    numbers: Words
    topic: Bytes
    queue_id: int


class Naming(IntEnum):
    """What an entry names: its own message, if the record is sound; another message of its size; no record of it."""

    OWN, OTHER, NO_RECORD = 0, 1, 2


class Verdict(IntEnum):
    """Whether a record is wanted; UNKNOWN: its topic is not known; FAULTY: its topic cannot be read."""

    UNWANTED, WANTED, UNKNOWN, FAULTY = 0, 1, 2, 3


@bare_kernel
def _body_bytes(array: Bytes, at: int, size: int) -> int:
    """The length of the body as the record at `at` says it; -1 where it would reach beyond the record."""
    extra = host_bytes(load_be32(array, at + SYS_FLAG_AT))
    room = size - FIXED_BYTES - extra
    if room < 0 or at + FIXED_BYTES + extra > array.size:
        return np.int64(-1)
    body_bytes = load_be32(array, at + BODY_LENGTH_AT + extra)
    return body_bytes if 0 <= body_bytes <= room else np.int64(-1)


@bare_kernel
def _fill(array: Bytes, at: int, heads: Words, row: int) -> None:
    """Write the head of the record at `at`, of which FIXED_BYTES bytes are there."""
    size, sys_flag = load_be32(array, at), load_be32(array, at + SYS_FLAG_AT)
    heads[Head.START, row], heads[Head.SIZE, row], heads[Head.SYS_FLAG, row] = at, size, sys_flag
    heads[Head.QUEUE_ID, row] = load_be32(array, at + QUEUE_ID_AT)
    heads[Head.QUEUE_OFFSET, row] = load_be64(array, at + QUEUE_OFFSET_AT)
    heads[Head.BORN_MS, row] = load_be64(array, at + BORN_TIMESTAMP_AT)
    heads[Head.STORED_MS, row] = store_timestamp(array, at)
    heads[Head.BODY_AT, row] = at + BODY_LENGTH_AT + host_bytes(sys_flag) + BODY_LENGTH_BYTES
    heads[Head.BODY_BYTES, row] = _body_bytes(array, at, size)


@bare_kernel
def _is_among(values: Words, value: int) -> bool:
    """Whether it is one of the ascending values."""
    low, high = 0, values.size
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < values.size and values[low] == value


@bare_kernel
def _is_inside(array: Bytes, at: int, size: int, base_offset: int, limits: Words) -> bool:
    body_bytes = _body_bytes(array, at, size)
    offset, stored_ms = load_be64(array, at + QUEUE_OFFSET_AT), store_timestamp(array, at)
    born_ms, place = load_be64(array, at + BORN_TIMESTAMP_AT), base_offset + at
    return (
        limits[Limited.QUEUE_OFFSET] <= offset <= limits[Limited.QUEUE_OFFSET + 1]
        and limits[Limited.PHYSICAL_OFFSET] <= place <= limits[Limited.PHYSICAL_OFFSET + 1]
        and limits[Limited.STORED_MS] <= stored_ms <= limits[Limited.STORED_MS + 1]
        and limits[Limited.BORN_MS] <= born_ms <= limits[Limited.BORN_MS + 1]
        and (body_bytes < 0 or limits[Limited.BODY_BYTES] <= body_bytes <= limits[Limited.BODY_BYTES + 1])
    )


@bare_kernel
def _begins_so(array: Bytes, at: int, size: int, sys_flag: int, beginnings: Words) -> bool:
    """Whether the topic begins with one of the beginnings, if the record is sound; its lengths are not checked."""
    body_at = at + BODY_LENGTH_AT + host_bytes(sys_flag) + BODY_LENGTH_BYTES
    if body_at > at + size:
        return False
    is_v2 = load_be32(array, at + MAGIC_AT) == MAGIC_V2
    topic_at = body_at + load_be32(array, body_at - BODY_LENGTH_BYTES) + 1 + is_v2
    if topic_at < body_at or topic_at + LETTERS_BYTES > at + size:
        return False
    letters = load_be32(array, topic_at)
    for k in range(beginnings.size):
        if beginnings[k] == letters:
            return True
    return False


@bare_kernel
def _verdict_on_topic(array: Bytes, at: int, size: int, topics: Topics) -> Verdict:
    spans = measure(array, at, size)
    if spans.body_at < 0:
        return Verdict.FAULTY
    count, table = spans.topic_end - spans.topic_at, topics.table
    slot = name_hash(array, spans.topic_at, count, 0) & (table.size - 1)
    while table[slot] != 0:
        place = topics.places[table[slot] - 1]
        if place[TopicColumn.BYTES] == count and same_bytes(
            array, spans.topic_at, topics.names, place[TopicColumn.AT], count
        ):
            return Verdict.WANTED if place[TopicColumn.IS_WANTED] else Verdict.UNWANTED
        slot = (slot + 1) & (table.size - 1)
    return Verdict.UNKNOWN


@kernel
def enter_topics(topics: Topics, first: int, until: int) -> None:
    """Have the topics with the numbers [first, until) found; the table has room for them."""
    table = topics.table
    for number in range(first, until):
        place = topics.places[number]
        slot = name_hash(topics.names, place[TopicColumn.AT], place[TopicColumn.BYTES], 0) & (table.size - 1)
        while table[slot] != 0:
            slot = (slot + 1) & (table.size - 1)
        table[slot] = number + 1


@bare_kernel
def _verdict_on_tags(array: Bytes, at: int, size: int, tags: Tags) -> Verdict:
    spans = measure(array, at, size)
    if spans.body_at < 0:
        return Verdict.FAULTY
    first, behind = find_value(array, spans.properties_at, spans.end, TAGS_NAME)
    for number in range(tags.ends.size - 1):
        name_at, count = tags.ends[number], tags.ends[number + 1] - tags.ends[number]
        if count == behind - first > 0 and same_bytes(array, first, tags.names, name_at, count):
            return Verdict.WANTED
    return Verdict.UNWANTED


@bare_kernel
def _verdict(array: Bytes, at: int, size: int, base_offset: int, wanted: Wanted) -> Verdict:
    """Whether the record of `size` bytes at `at`, which are there, is wanted."""
    sys_flag = load_be32(array, at + SYS_FLAG_AT)
    if sys_flag & wanted.without_flags:
        return Verdict.UNWANTED
    if wanted.queue_ids.size and not _is_among(wanted.queue_ids, load_be32(array, at + QUEUE_ID_AT)):
        return Verdict.UNWANTED
    if (
        wanted.limits.size
        and not sys_flag & INNER_BATCH
        and not _is_inside(array, at, size, base_offset, wanted.limits)
    ):
        return Verdict.UNWANTED
    asked, verdict = wanted.topics.asked, Verdict.WANTED
    if asked == Asked.ALL or (
        asked == Asked.BEGINNING_SO and _begins_so(array, at, size, sys_flag, wanted.topics.beginnings)
    ):
        verdict = _verdict_on_topic(array, at, size, wanted.topics)
    if verdict == Verdict.WANTED and wanted.tags.ends.size and not sys_flag & INNER_BATCH:
        return _verdict_on_tags(array, at, size, wanted.tags)
    return verdict


@bare_kernel
def _stop_of(verdict: Verdict) -> WalkStop:
    return WalkStop.NEW_TOPIC if verdict == Verdict.UNKNOWN else WalkStop.FAULTY


@bare_kernel
def _is_end(array: Bytes, position: int, segment_bytes: int) -> bool:
    """Whether records end at `position`, where none begins: at a blank one, or the array ends inside the head."""
    rest = array.size - position
    if rest >= BLANK_BYTES and load_be32(array, position + MAGIC_AT) == MAGIC_BLANK:
        return True
    return rest < HEAD_BYTES and array.size < segment_bytes


@bare_kernel
def _begins_here(array: Bytes, position: int, base_offset: int) -> bool:
    """Whether a record begins at `position` that names this place, as far as the array goes."""
    if array.size - position < HEAD_BYTES:
        return False
    magic = load_be32(array, position + MAGIC_AT)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return False
    return names_itself(array, position, base_offset) and load_be32(array, position) >= FIXED_BYTES


@kernel
def walk(
    array: Bytes, position: int, stretch: Stretch, wanted: Wanted, heads: Words, count: int
) -> tuple[int, int, WalkStop]:
    """Add heads of the wanted records from `position` on to the first `count` ones.

    Returns where the next record begins, how many heads there are now, and why it stopped. `array` ends where reading
    has to: nothing is said of a record that it cuts, unless the record's segment would cut it, too.
    """
    base_offset = stretch.base_offset
    end = min(stretch.end, array.size)
    first_byte, asked_for = address_of(array, 0), position
    while position < end:
        if not _begins_here(array, position, base_offset):
            is_end = _is_end(array, position, stretch.segment_bytes)
            return position, count, WalkStop.END if is_end else WalkStop.NO_RECORD
        size = load_be32(array, position)
        if position + size > array.size:
            is_cut = position + size <= stretch.segment_bytes
            return position, count, WalkStop.END if is_cut else WalkStop.NO_RECORD
        if size <= NEAR_BYTES:
            while asked_for < position + AHEAD_BYTES:
                prefetch(first_byte + asked_for)
                asked_for += LINE_BYTES
        else:
            asked_for = max(asked_for, position + size)
        if position >= stretch.first:
            verdict = _verdict(array, position, size, base_offset, wanted)
            if verdict > Verdict.WANTED:
                return position, count, _stop_of(verdict)
            if verdict == Verdict.WANTED:
                if count == heads.shape[1]:
                    return position, count, WalkStop.FULL
                _fill(array, position, heads, count)
                count += 1
        position += size
    return position, count, WalkStop.END


@kernel
def collect(
    array: Bytes, starts: Words, number: int, base_offset: int, wanted: Wanted, heads: Words, count: int
) -> tuple[int, int, WalkStop]:
    """Add heads of the wanted ones among the records that begin at `starts`, from that number on, to the first `count`.

    Returns the number of the start that is next, how many heads there are now, and why it stopped; there is room for
    all. A start where no whole record begins that names this place gives none.
    """
    while number < starts.size:
        at = starts[number]
        is_record = 0 <= at <= array.size - FIXED_BYTES and _begins_here(array, at, base_offset)
        size = load_be32(array, at) if is_record else np.int64(0)
        if is_record and at + size <= array.size:
            verdict = _verdict(array, at, size, base_offset, wanted)
            if verdict > Verdict.WANTED:
                return number, count, _stop_of(verdict)
            if verdict == Verdict.WANTED:
                _fill(array, at, heads, count)
                count += 1
        number += 1
    return number, count, WalkStop.END


@bare_kernel
def _part(array: Bytes, at: int, size: int, parts: Words, row: int) -> int:
    """Write where the parts of a record of `size` bytes lie, which are there; return its Fault."""
    spans = measure(array, at, size)
    parts[Part.TOPIC_AT, row], parts[Part.TOPIC_BYTES, row] = spans.topic_at, spans.topic_end - spans.topic_at
    parts[Part.PROPERTIES_AT, row] = spans.properties_at
    parts[Part.PROPERTIES_BYTES, row] = spans.end - spans.properties_at
    fault = -min(spans.body_at, 0)
    parts[Part.FAULT, row] = fault
    return fault


@bare_kernel
def _has_topic(array: Bytes, heads: Words, row: int, topic: Bytes) -> bool:
    """Whether the record whose head that is has the topic, if it is sound; its other lengths are not checked."""
    is_v2 = load_be32(array, heads[Head.START, row] + MAGIC_AT) == MAGIC_V2
    topic_at = heads[Head.BODY_AT, row] + heads[Head.BODY_BYTES, row] + 1 + is_v2
    if heads[Head.BODY_BYTES, row] < 0 or topic_at + topic.size > array.size:
        return False
    count = np.int64(array[topic_at - 1]) + (np.int64(array[topic_at - 2]) << 8 if is_v2 else 0)
    return is_text(array, topic_at, count, topic)


@kernel
def collect_named(array: Bytes, named: Named, base_offset: int, heads: Words, parts: Words, judged: Bytes) -> int:
    """Judge the records that entries of a queue name (Naming), and write their heads and parts, if there are any.

    Returns how many are not the messages of their entries.
    """
    others = np.int64(0)
    for row in range(named.positions.size):
        at, size = named.positions[row], np.int64(named.sizes[row])
        judged[row] = Naming.NO_RECORD
        is_there = FIXED_BYTES <= size <= array.size - at and at >= 0 and _begins_here(array, at, base_offset)
        if is_there and load_be32(array, at) == size:
            _fill(array, at, heads, row)
            _part(array, at, size, parts, row)
            is_own = heads[Head.QUEUE_ID, row] == named.queue_id and _has_topic(array, heads, row, named.topic)
            is_own = is_own and heads[Head.QUEUE_OFFSET, row] == named.numbers[row]
            judged[row] = Naming.OWN if is_own else Naming.OTHER
        others += judged[row] != Naming.OWN
    return others


@kernel
def fill_heads(array: Bytes, starts: Words, heads: Words) -> int:
    """Write the heads of all records that begin at `starts`; return the first that lies outside the array, or -1."""
    for row in range(starts.size):
        if not 0 <= starts[row] <= array.size - FIXED_BYTES:
            return row
        _fill(array, starts[row], heads, row)
    return -1


@kernel
def fill_parts(array: Bytes, starts: Words, sizes: Words, parts: Words) -> int:
    """Write where the parts of records lie behind their bodies; return the first whose lengths do not add up, or -1."""
    first_fault = -1
    for row in range(starts.size):
        at, size = starts[row], sizes[row]
        is_there = 0 <= at <= array.size - max(size, FIXED_BYTES)
        fault = _part(array, at, size, parts, row) if is_there else np.int64(BODY_FAULT)
        if fault:
            parts[Part.FAULT, row] = fault
            if first_fault < 0:
                first_fault = row
    return first_fault
