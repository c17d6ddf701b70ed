"""The compiled check of records: structure, CRCs, queue entries, all in one pass; nothing of a sound record in Python.

Implements: CommitLog.checkMessageAndReturnSize with checkCRC (spec: store-formats, 1, 3, 6, 8, 10)
`check` stops where the records end or Python has to decide, counts what is wrong with the entries of each queue, and
makes an event for what takes more than this record and its entry (half messages, extension units, batches).

Queues are rows of a table found by a hash of topic and queue id; their mapped files are known by address.
"""

# mypy: disable-error-code="no-any-return,return-value"

from __future__ import annotations

import numpy as np

from ipc.arrays import Bytes, Words
from ipc.compiled.crc import crc32
from ipc.compiled.kernels import bare_kernel, inlined
from ipc.compiled.memory import load_be32, load_be32_from, load_be64, load_be64_from, prefetch
from ipc.compiled.texts import begins_with, find_byte, name_hash, same_bytes
from store.message import properties, record
from store.message import rows_kernel as layout
from store.message.measure import BODY_LENGTH_BYTES
from store.message.measure_kernel import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, measure, names_itself, store_timestamp
from store.message.unit import LAST_ADDRESS
from store.queues.consume_queue import ENTRY_BYTES, ENTRY_SIZE_AT, ENTRY_TAGS_AT
from store.verify.check_words import (
    CheckStop,
    Count,
    Event,
    EventKind,
    Notes,
    Part,
    Queue,
    QueueArrays,
    QueueKind,
    State,
)

EVENTS_A_RECORD = 4
goes_to_queue = inlined(record.goes_to_queue)

ANY_TAGS = 1 << 62  # in an event: the tags are not ASCII, their hash is not known here
MULTI_NAME = np.frombuffer(properties.MULTI_DISPATCH.encode() + b"\x01", np.uint8)
TAGS_WORD, DELAY_WORD, MULTI_WORD = (
    int.from_bytes(name.encode()[:4], "big") for name in (properties.TAGS, properties.DELAY, properties.INNER_PREFIX)
)
CRC_NAME, CRC_DIGITS = np.frombuffer(properties.CRC_HEAD, np.uint8), properties.CRC_DIGITS
CRC_PROPERTY_BYTES = properties.CRC_PROPERTY_BYTES
NAME_SEPARATOR, PAIR_SEPARATOR = ord(properties.NAME_SEPARATOR), ord(properties.PAIR_SEPARATOR)
ZERO = ord("0")
HALF_BEFORE_BODY = 8 + BODY_LENGTH_BYTES  # the half message's offset, then the body's length
TRANSACTION_MASK, TRANSACTION_COMMIT = record.TRANSACTION_MASK, int(record.SysFlag.TRANSACTION_COMMIT)
INNER_BATCH, CRC_MASK = int(record.SysFlag.INNER_BATCH), record.CRC_MASK
PREFETCH_BYTES = 128
SHAPE_BYTES = 4 + 4 + 8 + 4 + 2  # sizes, magic number, physical offset, body length, properties length
QUEUE_FIELD_BYTES = 4 + 8  # queue id and queue offset


@bare_kernel
def find_queue(array: Bytes, at: int, count: int, queue_id: int, slots: Words, queues: Words, names: Bytes) -> int:
    """The queue's row; minus one minus the free slot when it has none."""
    slot = name_hash(array, at, count, queue_id) & (len(slots) - 1)
    while slots[slot] != 0:
        queue = slots[slot] - 1
        named = queues[queue, Queue.QUEUE_ID] == queue_id and queues[queue, Queue.NAME_BYTES] == count
        if named and same_bytes(array, at, names, queues[queue, Queue.NAME_AT], count):
            return queue
        slot = (slot + 1) & (len(slots) - 1)
    return -1 - slot


@bare_kernel
def _fill(array: Bytes, position: int, base_offset: int, parts: Words) -> bool:
    """Fill `parts` of the record of `parts[SIZE]` bytes at `position`; False when it contradicts itself."""
    spans = measure(array, position, parts[Part.SIZE])
    if spans.body_at < 0 or not names_itself(array, position, base_offset):
        return False
    parts[Part.SYS_FLAG] = load_be32(array, position + layout.SYS_FLAG_AT)
    parts[Part.BODY_AT], parts[Part.BODY_BYTES] = spans.body_at, spans.body_end - spans.body_at
    parts[Part.TOPIC_AT], parts[Part.TOPIC_BYTES] = spans.topic_at, spans.topic_end - spans.topic_at
    parts[Part.PROPERTIES_AT], parts[Part.PROPERTIES_BYTES] = spans.properties_at, spans.end - spans.properties_at
    parts[Part.STORED] = store_timestamp(array, position)
    return True


@bare_kernel
def ascii_hash(before: int, array: Bytes, at: int, end: int) -> tuple[int, bool]:
    """Java's String.hashCode going on with these bytes, and whether all are ASCII, so that it is."""
    code, every = np.uint32(before), np.uint32(0)
    for i in range(at, end):
        code = np.uint32(31) * code + np.uint32(array[i])
        every |= np.uint32(array[i])
    return int(np.int32(code)), every < np.uint32(128)


@bare_kernel
def read_properties(array: Bytes, parts: Words) -> None:
    """Find the properties that the queues depend on: TAGS, DELAY, multi-dispatch. The last one of a name counts."""
    parts[Part.TAGS_HASH], parts[Part.TAGS_PAIR_BYTES], parts[Part.TAGS_PLAIN] = 0, 0, 1
    parts[Part.LEVEL], parts[Part.MULTI_AT] = 0, -1
    at, end = parts[Part.PROPERTIES_AT], parts[Part.PROPERTIES_AT] + parts[Part.PROPERTIES_BYTES]
    while at + 5 < end:
        stop = find_byte(array, at, end, PAIR_SEPARATOR)
        word = load_be32(array, at)
        if word == TAGS_WORD and array[at + 4] == NAME_SEPARATOR and stop > at + 5:
            code, plain = ascii_hash(0, array, at + 5, stop)
            parts[Part.TAGS_HASH], parts[Part.TAGS_PLAIN] = code, plain
            parts[Part.TAGS_PAIR_BYTES] = min(stop + 1, end) - at
        elif word == DELAY_WORD and stop > at + 6 and array[at + 4] == ord("Y") and array[at + 5] == NAME_SEPARATOR:
            parts[Part.LEVEL] = layout._delay_level(array, at + 6, stop - at - 6)
        elif word == MULTI_WORD and begins_with(array, at, stop - 1, MULTI_NAME):
            parts[Part.MULTI_AT] = at
        at = stop + 1


@bare_kernel
def property_crc(array: Bytes, position: int, parts: Words) -> int:
    """1 when the record carries a CRC of its own (`__CRC32#`) that is right, -1 when it is wrong, 0 without one."""
    size = parts[Part.SIZE]
    at = position + size - CRC_PROPERTY_BYTES
    if parts[Part.PROPERTIES_BYTES] < CRC_PROPERTY_BYTES or not begins_with(array, at, position + size, CRC_NAME):
        return 0
    stored = np.int64(0)
    for i in range(CRC_DIGITS):  # the least significant digit comes first
        digit = np.int64(array[at + len(CRC_NAME) + CRC_DIGITS - 1 - i]) - ZERO
        if digit < 0 or digit > 9:
            return -1
        stored = stored * 10 + digit
    if array[position + size - 1] != PAIR_SEPARATOR:
        return -1
    return 1 if crc32(array, position, size - CRC_PROPERTY_BYTES) & CRC_MASK == stored else -1


@bare_kernel
def _body_is_right(array: Bytes, position: int, parts: Words) -> bool:
    if parts[Part.BODY_BYTES] == 0:  # RocketMQ does not look at it then
        return True
    stored = load_be32(array, position + layout.BODY_CRC_AT)
    return crc32(array, parts[Part.BODY_AT], parts[Part.BODY_BYTES]) & CRC_MASK == stored


@bare_kernel
def _is_record(array: Bytes, position: int, base_offset: int) -> bool:
    """Whether something there says that it is the record of this position."""
    if position < 0 or position + layout.FIXED_BYTES > len(array):
        return False
    magic = load_be32(array, position + layout.MAGIC_AT)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return False
    return names_itself(array, position, base_offset)


@bare_kernel
def _add_event(
    events: Words, count: int, event: int, position: int, queue: int, value: int, code: int, stored: int
) -> int:
    events[count, Event.EVENT], events[count, Event.POSITION], events[count, Event.QUEUE] = event, position, queue
    events[count, Event.VALUE], events[count, Event.TAGS_CODE] = value, code
    events[count, Event.STORE_TIMESTAMP] = stored
    return count + 1


@bare_kernel
def _look_at_entry(
    array: Bytes, position: int, base_offset: int, number: int, checked: QueueArrays, notes: Notes, count: int
) -> int:
    """Compare the record with its queue's entry; the number of events then."""
    queues, counts, parts, delays, events = checked.rows, checked.counts, notes.parts, notes.delays, notes.events
    queue_offset = load_be64(array, position + layout.QUEUE_OFFSET_AT)
    index = queue_offset - queues[number, Queue.FIRST]
    if index < 0 or index >= queues[number, Queue.COUNT]:
        which = Count.BEHIND if index >= queues[number, Queue.COUNT] else Count.MISSING
        if counts[number, which] == 0:
            counts[number, which + 1] = base_offset + position
        counts[number, which] += 1
        return count
    file, rest = 0, index
    if index >= queues[number, Queue.PER_FILE]:
        file = index // queues[number, Queue.PER_FILE]
        rest = index - file * queues[number, Queue.PER_FILE]
    address = checked.addresses[queues[number, Queue.FILES_AT] + file] + rest * ENTRY_BYTES
    prefetch(address + PREFETCH_BYTES)  # there are more queues than streams that the machine follows by itself
    held = load_be64_from(address + ENTRY_TAGS_AT)
    code, size = parts[Part.TAGS_HASH], parts[Part.SIZE]
    if load_be64_from(address) == base_offset + position and load_be32_from(address + ENTRY_SIZE_AT) == size:
        late = queues[number, Queue.KIND] == QueueKind.SCHEDULE and parts[Part.LEVEL] > 0
        same = held == code or (late and held == parts[Part.STORED] + delays[min(parts[Part.LEVEL], len(delays) - 1)])
        if same or held <= LAST_ADDRESS or parts[Part.TAGS_PLAIN] == 0:
            checked.matched[queues[number, Queue.MATCHED_AT] + index] = 1
            if held <= LAST_ADDRESS:
                if late:
                    code = parts[Part.STORED] + delays[min(parts[Part.LEVEL], len(delays) - 1)]
                elif parts[Part.TAGS_PLAIN] == 0:
                    code = np.int64(ANY_TAGS)
                return _add_event(events, count, EventKind.EXT, position, number, held, code, parts[Part.STORED])
            if not same:
                return _add_event(events, count, EventKind.TAGS_TEXT, position, number, held, code, parts[Part.STORED])
            return count
    if counts[number, Count.WRONG] == 0:
        counts[number, Count.WRONG_ENTRY], counts[number, Count.WRONG_OFFSET] = queue_offset, base_offset + position
        counts[number, Count.WRONG_SIZE] = size
    counts[number, Count.WRONG] += 1
    return count


@bare_kernel
def _note_time(offset: int, stored: int, state: Words) -> None:
    if state[State.RECORDS] == 0:
        state[State.FIRST_TIME] = stored
    elif stored < state[State.LAST_TIME]:
        if state[State.TIME_FALLS] == 0:
            state[State.FALL_OFFSET] = offset
        state[State.TIME_FALLS] += 1
    state[State.LAST_TIME] = stored
    state[State.RECORDS] += 1


@bare_kernel
def _note_protection(parts: Words, whole: bool, queued: bool, tags: bool, state: Words) -> None:
    """Count how many of the record's bytes a CRC covers, how many are checked otherwise, how many nothing protects."""
    size = parts[Part.SIZE]
    if whole:
        protected, structure = size - len(CRC_NAME) - 1, 1
    else:
        protected = parts[Part.BODY_BYTES]
        structure = SHAPE_BYTES + (parts[Part.TOPIC_AT] - parts[Part.BODY_AT] - protected) + (4 if protected else 0)
        if queued:
            structure += QUEUE_FIELD_BYTES + parts[Part.TOPIC_BYTES] + (parts[Part.TAGS_PAIR_BYTES] if tags else 0)
    state[State.CRC_BYTES] += protected
    state[State.STRUCTURE_BYTES] += structure
    state[State.OPEN_BYTES] += size - protected - structure


@bare_kernel
def shape(array: Bytes, position: int, limit: int, base_offset: int, parts: Words) -> CheckStop:
    """Return why no sound record is there, apart from its CRCs; SOUND and filled `parts` when one is."""
    if limit - position < layout.BLANK_BYTES:
        return CheckStop.PARTIAL
    size, magic = load_be32(array, position), load_be32(array, position + layout.MAGIC_AT)
    if magic == MAGIC_BLANK:
        return CheckStop.BLANK
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return CheckStop.NO_RECORD
    if size < layout.FIXED_BYTES or position + size > len(array):
        return CheckStop.DAMAGED
    if size > limit - position:
        return CheckStop.PARTIAL
    parts[Part.SIZE] = size
    return CheckStop.SOUND if _fill(array, position, base_offset, parts) else CheckStop.DAMAGED


@bare_kernel
def _other_events(
    array: Bytes, position: int, base_offset: int, parts: Words, queued: bool, in_batch: bool, events: Words, count: int
) -> int:
    """Note what takes more than this record and its entry; return the number of events then."""
    if queued and in_batch:
        count = _add_event(events, count, EventKind.IN_BATCH, position, -1, 0, 0, 0)
    if queued and parts[Part.MULTI_AT] >= 0:
        count = _add_event(events, count, EventKind.MULTI, position, -1, parts[Part.MULTI_AT], parts[Part.TAGS_HASH], 0)
    if parts[Part.SYS_FLAG] & TRANSACTION_MASK == TRANSACTION_COMMIT:
        half = load_be64(array, parts[Part.BODY_AT] - HALF_BEFORE_BODY)
        if half < base_offset + position and not _is_record(array, half - base_offset, base_offset):
            count = _add_event(events, count, EventKind.HALF, position, -1, half, 0, 0)
    return count


@bare_kernel
def check(
    array: Bytes,
    position: int,
    limit: int,
    pause_at: int,
    base_offset: int,
    dispatched: int,
    queues: QueueArrays,
    notes: Notes,
) -> tuple[int, CheckStop, int]:
    """Check the records from `position` on: (where it stopped, why, how many events).

    Bytes at and above `limit` are not looked at; PAUSE: `pause_at` is reached or `events` is full. Records at and above
    the log offset `dispatched` need no entry. NEW_QUEUE: this record's queue is not in the table.
    """
    count, parts, events = 0, notes.parts, notes.events
    while position < limit:
        if position >= pause_at or count + EVENTS_A_RECORD > len(events):
            return position, CheckStop.PAUSE, count
        stop = shape(array, position, limit, base_offset, parts)
        if stop != CheckStop.SOUND:
            return position, stop, count
        if not _body_is_right(array, position, parts):
            return position, CheckStop.BODY_CRC, count
        read_properties(array, parts)
        whole = property_crc(array, position, parts)
        if whole < 0:
            return position, CheckStop.PROPERTY_CRC, count
        queued = goes_to_queue(parts[Part.SYS_FLAG]) and base_offset + position < dispatched
        in_batch, plain = parts[Part.SYS_FLAG] & INNER_BATCH != 0, True
        if queued and not in_batch:
            queue_id = load_be32(array, position + layout.QUEUE_ID_AT)
            at, length = parts[Part.TOPIC_AT], parts[Part.TOPIC_BYTES]
            number = find_queue(array, at, length, queue_id, queues.slots, queues.rows, queues.names)
            if number < 0:
                return position, CheckStop.NEW_QUEUE, count
            kind = queues.rows[number, Queue.KIND]
            in_batch, plain = kind == QueueKind.BATCH, kind == QueueKind.PLAIN
            if not in_batch:
                count = _look_at_entry(array, position, base_offset, number, queues, notes, count)
        count = _other_events(array, position, base_offset, parts, queued, in_batch, events, count)
        _note_protection(parts, whole > 0, queued and not in_batch, plain, notes.state)
        _note_time(base_offset + position, parts[Part.STORED], notes.state)
        position += parts[Part.SIZE]
    return position, CheckStop.LIMIT, count
