"""The keys of a batch of records into an index file, compiled: found, then put, nothing per key in Python.

Implements: IndexService.buildIndex, IndexFile.putKey (spec: store-formats, section 13)
The order of the stores is the protocol with a process that is killed and with readers: entry, slot, header, and the
header's last word is the count, so that at any instant at most one entry is there that does not count yet (`unchain`
takes it out).

The hash of a key with other than ASCII characters is left to the caller: Java's is over UTF-16.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ipc.arrays import Bytes, Words
from ipc.compiled.kernels import bare_kernel, inlined, kernel
from ipc.compiled.memory import load_be32, load_be64, prefetch, store_be32, store_be64
from ipc.compiled.texts import begins_with, is_ascii, same_bytes
from store.index import index_file
from store.message import properties
from store.message.measure import PROPERTIES_LENGTH_BYTES
from store.message.record import TRANSACTION_MASK, SysFlag
from store.message.rows_kernel import Row, Scanned, hash_on

KEYS_MAX = 1 << 16  # keys there may be at once: more than the KEYS of one record hold
AHEAD = 16  # so many rows, or keys, before its turn a place is asked for that is rarely in the CPU's cache
CACHE_LINE_BYTES = 64


class PutWord(IntEnum):
    """Words of `state`: what is put and where it stopped."""

    ROW, KEY, ROOM = 0, 1, 2  # the next row and key; entries below ROOM have blocks of their own
    COUNT, USED = 3, 4  # what the header counts: the next entry, and slots in use


class Key(IntEnum):
    """Columns of a key's row."""

    KEY_HASH, SLOT_AT = 0, 1


class OpenIndex(NamedTuple):
    """An index file that is open, and memory for the keys of a batch; without an index all of it is empty."""

    keys: Words  # a row of `Key` for each
    key_ends: Words  # by row: the number of the first key behind the row's own
    file: Bytes
    slots: int
    entries_max: int
    state: Words  # see PutWord


class KeyPlace(IntEnum):
    """Columns of a record's keys: where UNIQ_KEY and KEYS begin and end, 0 without."""

    UNIQ_AT, UNIQ_END, KEYS_AT, KEYS_END = 0, 1, 2, 3


class PutStop(IntEnum):
    """Reasons why the kernel stopped putting keys."""

    ALL_DONE, FILE_FULL, NO_ROOM, NOT_ASCII, NO_CAPACITY = 0, 1, 2, 3, 4


KEY_PLACES = len(KeyPlace)
MASK, ROLLBACK = TRANSACTION_MASK, int(SysFlag.TRANSACTION_ROLLBACK)
HEADER_BYTES, SLOT_BYTES, ENTRY_BYTES = index_file.HEADER_BYTES, index_file.SLOT_BYTES, index_file.ENTRY_BYTES
INT_MAX = index_file.INT_MAX
_fields = index_file.HEADER_DTYPE.fields
_entry_fields = index_file.ENTRY_DTYPE.fields
assert _fields is not None and _entry_fields is not None
BEGIN_TIME_AT, END_TIME_AT, BEGIN_OFFSET_AT, END_OFFSET_AT, COUNTS_AT, COUNT_AT = (
    int(_fields[name][1]) for name in index_file.Header._fields
)
OFFSET_AT, SECONDS_AT, PREVIOUS_AT = (
    int(_entry_fields[name][1]) for name in ("physical_offset", "time_diff_s", "previous")
)
KEYS_NAME, UNIQ_NAME = (
    np.frombuffer((name + properties.NAME_SEPARATOR).encode(), np.uint8)
    for name in (properties.KEYS, properties.UNIQ_KEY)
)
PAIR_SEPARATOR, KEY_SEPARATOR = ord(properties.PAIR_SEPARATOR), ord(" ")
WORD_BYTES = 8
PAIR_SEPARATORS, LOW_BITS = (int.from_bytes(bytes([byte]) * WORD_BYTES, "big") for byte in (PAIR_SEPARATOR, 0x7F))
HASH_SIGN = ord("#")
positive_hash = inlined(index_file.positive_hash)


@bare_kernel
def _key_hash(topic_hash: int, array: Bytes, at: int, end: int) -> int:
    """The hash of `topic#key`, positive, from the topic's own."""
    return int(positive_hash(np.int64(np.int32(hash_on(topic_hash * 31 + HASH_SIGN, array, at, end)))))


@bare_kernel
def _pair_end(array: Bytes, at: int, end: int) -> int:
    """Return where the next pair's separator stands, `end` without one; eight bytes a step."""
    while end - at >= WORD_BYTES:
        differing = load_be64(array, at) ^ PAIR_SEPARATORS
        if ((differing & LOW_BITS) + LOW_BITS) | differing | LOW_BITS != -1:  # a byte of it is zero
            break
        at += WORD_BYTES
    while at < end and array[at] != PAIR_SEPARATOR:
        at += 1
    return at


@bare_kernel
def _find_keys(array: Bytes, start: int, end: int, places: Words) -> None:
    """Find where the values of UNIQ_KEY and KEYS lie in the properties [start, end)."""
    places[:] = 0
    at = start
    while at < end:
        stop = _pair_end(array, at, end)
        if begins_with(array, at, stop - 1, UNIQ_NAME):
            places[KeyPlace.UNIQ_AT], places[KeyPlace.UNIQ_END] = at + len(UNIQ_NAME), stop
        elif begins_with(array, at, stop - 1, KEYS_NAME):
            places[KeyPlace.KEYS_AT], places[KeyPlace.KEYS_END] = at + len(KEYS_NAME), stop
        at = stop + 1


@inlined
def _add_key(keys: Words, number: int, key_hash: int, slots: int) -> None:
    keys[number, Key.KEY_HASH] = key_hash
    keys[number, Key.SLOT_AT] = HEADER_BYTES + int(np.uint32(key_hash) % np.uint32(slots)) * SLOT_BYTES


@kernel
def add_key(keys: Words, number: int, key_hash: int, slots: int) -> None:
    """Add one key by its hash."""
    _add_key(keys, number, key_hash, slots)


@bare_kernel
def _add_keys(array: Bytes, places: Words, topic_hash: int, keys: Words, number: int, slots: int) -> int:
    """UNIQ_KEY, then every part of KEYS that is not empty; the number of the next key."""
    if places[KeyPlace.UNIQ_END] > 0:
        _add_key(keys, number, _key_hash(topic_hash, array, places[KeyPlace.UNIQ_AT], places[KeyPlace.UNIQ_END]), slots)
        number += 1
    at, end = places[KeyPlace.KEYS_AT], places[KeyPlace.KEYS_END]
    while at < end:
        stop = at
        while stop < end and array[stop] != KEY_SEPARATOR:
            stop += 1
        if stop > at:
            _add_key(keys, number, _key_hash(topic_hash, array, at, stop), slots)
            number += 1
        at = stop + 1
    return number


@kernel
def keys_of_rows(
    array: Bytes, rows: Words, first: int, count: int, keys: Words, number: int, ends: Words, slots: int
) -> tuple[int, int, int]:
    """The keys of the rows from `first` on, behind the `number` that are there: (the next row, how many keys, why).

    `ends[row]` is the number of the first key behind the row's own.
    """
    places = np.zeros(KEY_PLACES, np.int64)
    topic_at = topic_hash = np.int64(0)
    topic_bytes, topic_is_ascii, address = np.int64(-1), False, array.ctypes.data
    for number_of_row in range(first, count):
        ahead = address + rows[min(number_of_row + AHEAD, count - 1), Row.TOPIC_AT]
        prefetch(ahead)
        prefetch(ahead + CACHE_LINE_BYTES)
        at = rows[number_of_row, Row.TOPIC_AT]
        end, record_at = at + rows[number_of_row, Row.TOPIC_BYTES], rows[number_of_row, Row.POSITION]
        _find_keys(array, end + PROPERTIES_LENGTH_BYTES, record_at + rows[number_of_row, Row.SIZE], places)
        if places[KeyPlace.UNIQ_END] > 0 or places[KeyPlace.KEYS_END] > 0:
            if number + 2 + (places[KeyPlace.KEYS_END] - places[KeyPlace.KEYS_AT]) // 2 > KEYS_MAX:
                return number_of_row, number, PutStop.NO_CAPACITY
            if end - at != topic_bytes or not same_bytes(array, at, array, topic_at, topic_bytes):
                topic_hash, topic_is_ascii = hash_on(0, array, at, end), is_ascii(array, at, end)
            topic_at, topic_bytes = at, end - at
            uniq_is_ascii = is_ascii(array, places[KeyPlace.UNIQ_AT], places[KeyPlace.UNIQ_END])
            keys_are_ascii = is_ascii(array, places[KeyPlace.KEYS_AT], places[KeyPlace.KEYS_END])
            if not (topic_is_ascii and uniq_is_ascii and keys_are_ascii):
                return number_of_row, number, PutStop.NOT_ASCII
            number = _add_keys(array, places, topic_hash, keys, number, slots)
        ends[number_of_row] = number
    return count, number, PutStop.ALL_DONE


@bare_kernel
def put_one(index: Bytes, slots: int, key: Words, physical_offset: int, store_ms: int, state: Words) -> None:
    """Put one entry; the caller has checked that the file has room.

    The counts are read from `state`, so that nothing waits for the slot.
    """
    count, slot_at = state[PutWord.COUNT], key[Key.SLOT_AT]
    begin_ms = load_be64(index, BEGIN_TIME_AT)
    previous = load_be32(index, slot_at)
    if previous <= 0 or previous > count:
        previous = 0
    seconds = (store_ms - begin_ms) // 1000 if begin_ms > 0 else 0
    at = HEADER_BYTES + slots * SLOT_BYTES + count * ENTRY_BYTES
    store_be32(index, at, key[Key.KEY_HASH])
    store_be64(index, at + OFFSET_AT, physical_offset)
    store_be32(index, at + SECONDS_AT, max(0, min(seconds, INT_MAX)))
    store_be32(index, at + PREVIOUS_AT, previous)
    store_be32(index, slot_at, count)
    if count == 1:
        store_be64(index, BEGIN_OFFSET_AT, physical_offset)
        store_be64(index, BEGIN_TIME_AT, store_ms)
    state[PutWord.COUNT] = count + 1
    state[PutWord.USED] += 1 if previous == 0 else 0
    store_be64(index, END_OFFSET_AT, physical_offset)
    store_be64(index, END_TIME_AT, store_ms)
    store_be64(index, COUNTS_AT, (state[PutWord.USED] << 32) | (count + 1))


@bare_kernel
def _is_dispatched(index: Bytes, physical_offset: int, state: Words) -> bool:
    """Whether the index has gone past that record. One at the very end is in it already, unless nothing is yet."""
    end_offset = load_be64(index, END_OFFSET_AT)
    if physical_offset == end_offset:
        return bool(end_offset > 0 or state[PutWord.COUNT] > 1)
    return bool(physical_offset < end_offset)


@bare_kernel
def put_rows(
    rows: Words,
    span: tuple[int, int],
    keys: Words,
    ends: Words,
    base_offset: int,
    index: Bytes,
    geometry: tuple[int, int],
    state: Words,
) -> int:
    """The keys of the rows from state[PutWord.ROW] on, of a span that begins with key 0; why it stopped.

    Nothing is put twice when it is called again.
    """
    first, end = span
    slots, entries_max = geometry
    last, address = ends[end - 1], index.ctypes.data
    state[PutWord.COUNT] = max(load_be32(index, COUNT_AT), 1)
    state[PutWord.USED] = load_be32(index, COUNTS_AT)
    while state[PutWord.ROW] < end:
        row = rows[state[PutWord.ROW]]
        own = ends[state[PutWord.ROW] - 1] if state[PutWord.ROW] > first else 0
        physical_offset = base_offset + row[Row.POSITION]
        if state[PutWord.KEY] == own:
            if state[PutWord.COUNT] >= entries_max:
                return PutStop.FILE_FULL
            if _is_dispatched(index, physical_offset, state) or row[Row.SYS_FLAG] & MASK == ROLLBACK:
                state[PutWord.KEY] = ends[state[PutWord.ROW]]
        while state[PutWord.KEY] < ends[state[PutWord.ROW]]:
            if state[PutWord.COUNT] >= entries_max:
                return PutStop.FILE_FULL
            if state[PutWord.COUNT] >= state[PutWord.ROOM]:
                return PutStop.NO_ROOM
            if state[PutWord.KEY] + AHEAD < last:
                prefetch(address + keys[state[PutWord.KEY] + AHEAD, Key.SLOT_AT])
            put_one(index, slots, keys[state[PutWord.KEY]], physical_offset, row[Row.STORE_TIMESTAMP], state)
            state[PutWord.KEY] += 1
        state[PutWord.ROW] += 1
    return PutStop.ALL_DONE


@kernel
def put_into_open_file(scanned: Scanned, count: int, index: OpenIndex) -> bool:
    """Put the keys of the first `count` rows into a file that is open.

    False, and nothing is put, where that needs the caller: a hash over UTF-16, a file, room in it, another round.
    """
    rows, keys, ends, state, entries_max = scanned.rows, index.keys, index.key_ends, index.state, index.entries_max
    if len(index.file) == 0 or count > len(ends):
        return False
    there = max(load_be32(index.file, COUNT_AT), 1)
    _, number, why = keys_of_rows(scanned.array, rows, 0, count, keys, 0, ends, index.slots)
    room = entries_max if number == 0 else min(entries_max, state[PutWord.ROOM])
    if why != PutStop.ALL_DONE or there >= entries_max or there + number > room:
        return False
    state[PutWord.ROW], state[PutWord.KEY] = 0, 0
    geometry = (index.slots, entries_max)
    stop = put_rows(rows, (0, count), keys, ends, scanned.base_offset, index.file, geometry, state)
    return bool(stop == PutStop.ALL_DONE)


@kernel
def unchain(index: Bytes, slots: int, first: int, end: int) -> int:
    """Take the entries [first, end) out of their chains, newest first; how many of them were the first of their slot.

    For chains that are whole: what a killed process left. The entries stay as they are, so that it may be done again.
    """
    freed = 0
    for number in range(end - 1, first - 1, -1):
        at = HEADER_BYTES + slots * SLOT_BYTES + number * ENTRY_BYTES
        slot_at = HEADER_BYTES + max(load_be32(index, at), 0) % slots * SLOT_BYTES
        previous = load_be32(index, at + PREVIOUS_AT)
        if load_be32(index, slot_at) == number:
            store_be32(index, slot_at, previous)
        if previous == 0:
            freed += 1
    return freed


@kernel
def clear(index: Bytes, slots: int, first: int, end: int) -> None:
    """Zeros for the entries [first, end), which do not count any more."""
    start = HEADER_BYTES + slots * SLOT_BYTES
    for at in range(start + first * ENTRY_BYTES, start + end * ENTRY_BYTES, SLOT_BYTES):
        if load_be32(index, at) != 0:  # a hole of the file stays one: it has no blocks to store into
            store_be32(index, at, 0)


@kernel
def chain_again(index: Bytes, slots: int, count: int) -> int:
    """Make the slots again from the entries below `count`; the first entry that cannot be right, `count` without one.

    For a file that a power cut left: slots may name entries that never reached the disk, and the other way round.
    """
    for at in range(HEADER_BYTES, HEADER_BYTES + slots * SLOT_BYTES, SLOT_BYTES):
        if load_be32(index, at) != 0:  # what is a hole of the file has no blocks to store into
            store_be32(index, at, 0)
    last_offset = np.int64(0)
    for number in range(1, count):
        at = HEADER_BYTES + slots * SLOT_BYTES + number * ENTRY_BYTES
        key_hash, physical_offset = load_be32(index, at), load_be64(index, at + OFFSET_AT)
        if key_hash < 0 or physical_offset < last_offset or load_be32(index, at + SECONDS_AT) < 0:
            return number
        slot_at = HEADER_BYTES + key_hash % slots * SLOT_BYTES
        if load_be32(index, at + PREVIOUS_AT) != load_be32(index, slot_at):
            return number
        store_be32(index, slot_at, number)
        last_offset = physical_offset
    return count
