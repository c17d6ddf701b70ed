"""The keys of a batch of records into an index file, compiled: one pass, nothing per key in Python.

Implements: IndexService.buildIndex, IndexFile.putKey (spec: store-formats, section 13)
Only the engine and recovery import this (numba). The order of the stores is the protocol with a process that is killed
and with readers: entry, slot, header, and the header's last word is the count, so that at any instant at most one entry
is there that does not count yet (`unchain` takes it out).

A key with other than ASCII characters is left to the caller: Java's hash is over UTF-16.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ipc.compiling import inlined, kernel
from ipc.memory import load_be32, load_be64, store_be32, store_be64
from store import dispatch_kernel as rows_of
from store import index_file, properties
from store.record import TRANSACTION_MASK, SysFlag

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.int64]

# words of `state`: what is put and where it stopped
ROW, KEYS_DONE, ROOM = 0, 1, 2  # the next row; keys of it that are in; entries below ROOM have blocks of their own
STATE_WORDS = 3

# why a put stopped
ALL_DONE, FILE_FULL, NO_ROOM, NOT_ASCII = 0, 1, 2, 3

POSITION, SIZE, TOPIC_AT, TOPIC_BYTES = rows_of.POSITION, rows_of.SIZE, rows_of.TOPIC_AT, rows_of.TOPIC_BYTES
SYS_FLAG, STORE_TIMESTAMP = rows_of.SYS_FLAG, rows_of.STORE_TIMESTAMP
PROPERTIES_LENGTH_BYTES = rows_of.PROPERTIES_LENGTH_BYTES
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
KEYS_NAME = np.frombuffer(properties.KEYS.encode(), np.uint8)
UNIQ_NAME = np.frombuffer(properties.UNIQ_KEY.encode(), np.uint8)
NAME_SEPARATOR, PAIR_SEPARATOR, KEY_SEPARATOR = rows_of.NAME_SEPARATOR, rows_of.PAIR_SEPARATOR, ord(" ")
HASH_SIGN = ord("#")
P1, P2, P3, P4 = np.uint32(31), np.uint32(31**2), np.uint32(31**3), np.uint32(31**4)


@inlined
def _equals(array: Bytes, at: int, name: Bytes) -> bool:
    for i in range(len(name)):
        if array[at + i] != name[i]:
            return False
    return True


@kernel
def _hash_on(code: int, array: Bytes, at: int, end: int) -> int:
    """Java's hash of a text that goes on with the bytes [at, end); the steps of four bytes are independent."""
    value = np.uint32(code)
    while end - at >= 4:
        value = (
            value * P4 + np.uint32(array[at]) * P3 + np.uint32(array[at + 1]) * P2
            + np.uint32(array[at + 2]) * P1 + np.uint32(array[at + 3])
        )  # fmt: skip
        at += 4
    for i in range(at, end):
        value = value * P1 + np.uint32(array[i])
    return int(value)


@kernel
def _key_hash(topic_hash: int, array: Bytes, at: int, end: int) -> int:
    """The hash of `topic#key`, positive, from the topic's own."""
    code = np.int64(np.int32(_hash_on(topic_hash * 31 + HASH_SIGN, array, at, end)))
    return 0 if code == -INT_MAX - 1 else int(abs(code))


@inlined
def _is_ascii(array: Bytes, at: int, end: int) -> bool:
    bits = 0
    for i in range(at, end):
        bits |= int(array[i])
    return bits < 128


@kernel
def _find_keys(array: Bytes, start: int, end: int, places: Words) -> None:
    """Where the values of UNIQ_KEY and KEYS lie in the properties [start, end): begin and end of each, 0 without."""
    places[:] = 0
    at = start
    while at < end:
        equals, stop = -1, at
        while stop < end and array[stop] != PAIR_SEPARATOR:
            if equals < 0 and array[stop] == NAME_SEPARATOR:
                equals = stop
            stop += 1
        if equals > at and equals < stop - 1:
            if equals - at == len(UNIQ_NAME) and _equals(array, at, UNIQ_NAME):
                places[0], places[1] = equals + 1, stop
            elif equals - at == len(KEYS_NAME) and _equals(array, at, KEYS_NAME):
                places[2], places[3] = equals + 1, stop
        at = stop + 1


@kernel
def put_one(index: Bytes, slots: int, key_hash: int, physical_offset: int, store_ms: int) -> None:
    """One entry; the file has room for it. `key_hash` is never negative."""
    count = max(load_be32(index, COUNT_AT), 1)
    begin_ms = load_be64(index, BEGIN_TIME_AT)
    slot_at = HEADER_BYTES + key_hash % slots * SLOT_BYTES
    previous = load_be32(index, slot_at)
    if previous <= 0 or previous > count:
        previous = 0
    seconds = (store_ms - begin_ms) // 1000 if begin_ms > 0 else 0
    at = HEADER_BYTES + slots * SLOT_BYTES + count * ENTRY_BYTES
    store_be32(index, at, key_hash)
    store_be64(index, at + OFFSET_AT, physical_offset)
    store_be32(index, at + SECONDS_AT, max(0, min(seconds, INT_MAX)))
    store_be32(index, at + PREVIOUS_AT, previous)
    store_be32(index, slot_at, count)
    if count == 1:
        store_be64(index, BEGIN_OFFSET_AT, physical_offset)
        store_be64(index, BEGIN_TIME_AT, store_ms)
    used = load_be32(index, COUNTS_AT) + (1 if previous == 0 else 0)
    store_be64(index, END_OFFSET_AT, physical_offset)
    store_be64(index, END_TIME_AT, store_ms)
    store_be64(index, COUNTS_AT, (used << 32) | (count + 1))


@inlined
def _is_dispatched(index: Bytes, physical_offset: int) -> bool:
    """Whether the index has gone past that record. One at the very end is in it already, unless nothing is yet."""
    end_offset = int(load_be64(index, END_OFFSET_AT))
    if physical_offset == end_offset:
        return end_offset > 0 or int(load_be32(index, COUNT_AT)) > 1
    return physical_offset < end_offset


@kernel
def _put_row(
    array: Bytes, row: Words, base_offset: int, index: Bytes, slots: int, entries_max: int, state: Words, places: Words
) -> int:
    """The keys of one record from KEYS_DONE on: UNIQ_KEY, then every part of KEYS that is not empty."""
    topic_at, topic_end = row[TOPIC_AT], row[TOPIC_AT] + row[TOPIC_BYTES]
    _find_keys(array, topic_end + PROPERTIES_LENGTH_BYTES, row[POSITION] + row[SIZE], places)
    if places[1] == 0 and places[3] == 0:
        return ALL_DONE
    if not (
        _is_ascii(array, topic_at, topic_end) and _is_ascii(array, places[0], places[1])
        and _is_ascii(array, places[2], places[3])
    ):  # fmt: skip
        return NOT_ASCII
    topic_hash = _hash_on(0, array, topic_at, topic_end)
    number, at, end = 0, places[0], places[1]
    in_keys = False
    while True:
        if at >= end:
            if in_keys:
                return ALL_DONE
            in_keys, at, stop, end = True, places[2], places[2], places[3]
            continue
        stop = end
        if in_keys:
            stop = at
            while stop < end and array[stop] != KEY_SEPARATOR:
                stop += 1
        if stop > at:
            if number >= state[KEYS_DONE]:
                count = max(load_be32(index, COUNT_AT), 1)
                if count >= entries_max:
                    return FILE_FULL
                if count >= state[ROOM]:
                    return NO_ROOM
                key_hash = _key_hash(topic_hash, array, at, stop)
                put_one(index, slots, key_hash, base_offset + row[POSITION], row[STORE_TIMESTAMP])
                state[KEYS_DONE] += 1
            number += 1
        at = stop + 1


@kernel
def put_rows(
    array: Bytes, rows: Words, count: int, base_offset: int, index: Bytes, slots: int, entries_max: int, state: Words
) -> int:
    """The keys of the rows from state[ROW] on; why it stopped. Nothing is put twice when it is called again."""
    places = np.zeros(4, np.int64)
    while state[ROW] < count:
        row = rows[state[ROW]]
        if state[KEYS_DONE] == 0:
            if load_be32(index, COUNT_AT) >= entries_max:
                return FILE_FULL
            skipped = _is_dispatched(index, base_offset + row[POSITION]) or row[SYS_FLAG] & MASK == ROLLBACK
        else:
            skipped = False
        if not skipped:
            why = int(_put_row(array, row, base_offset, index, slots, entries_max, state, places))
            if why != ALL_DONE:
                return why
        state[ROW] += 1
        state[KEYS_DONE] = 0
    return ALL_DONE


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
