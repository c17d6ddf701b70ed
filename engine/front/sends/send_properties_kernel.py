"""A message's properties in the broker's order with the broker's own, compiled: Java's HashMap for the usual names.

Implements: MessageDecoder.string2messageProperties, messageProperties2String, HashMap (spec: store-formats, 3)
The rules are those of `store.put.request.received`, for names that ask a broker for nothing else. A table of 2^n
buckets is listed from the first to the last, each in order of insertion; it doubles when it is three quarters full.
"""

# mypy: disable-error-code="no-any-return,return-value"

from __future__ import annotations

import numpy as np

from engine.front.frames.send_words import (
    OWN_MAX,
    PROPERTIES_MAX,
    PROPERTY_WORDS,
    UNIQUE_KEY_BYTES,
    PropertyWord,
    RulesWord,
    SaidWord,
)
from ipc.arrays import Bytes, Words
from ipc.compiled.kernels import bare_kernel
from ipc.compiled.memory import copy_bytes
from store.message.properties import (
    CLUSTER,
    INNER_PREFIX,
    MSG_REGION,
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    TRACE_ON,
    UNIQ_KEY,
    WAIT,
    java_hash,
)
from store.put.request import POLICY_PROPERTIES

NAME_END, PAIR_END = ord(NAME_SEPARATOR), ord(PAIR_SEPARATOR)
BUCKET_ENTRIES_MAX, TREE_CAPACITY_MIN = 8, 64  # more in one, and Java's map does something else
ENTRIES_MAX = PROPERTIES_MAX + OWN_MAX
INDEX_BITS = 8
INDEX_MASK = (1 << INDEX_BITS) - 1
# Names by hash: where another name has the same one, it is unusual, too.
REFUSED_HASHES = np.array(
    [java_hash(name) for name in sorted((POLICY_PROPERTIES | {CLUSTER, MSG_REGION, TRACE_ON}) - {WAIT})], np.int64
)
PREFIX_BYTES = 3
INNER_START = tuple(INNER_PREFIX.encode()[:PREFIX_BYTES])
TIMER_START = tuple(b"TIM")
WAIT_NAME, UNIQUE_NAME = (np.frombuffer(name.encode(), np.uint8).copy() for name in (WAIT, UNIQ_KEY))
WAIT_HASH, UNIQUE_HASH = java_hash(WAIT), java_hash(UNIQ_KEY)
TRUE, FALSE = (np.frombuffer(text, np.uint8).copy() for text in (b"true", b"false"))


@bare_kernel
def is_utf8(data: Bytes, at: int, count: int) -> bool:
    """Whether these bytes are UTF-8 without surrogates, in its shortest form."""
    end = at + count
    while at < end:
        byte = np.int64(data[at])
        at += 1
        if byte < 0x80:
            continue
        if 0xC2 <= byte < 0xE0:
            more, low, high = 1, 0x80, 0xBF
        elif 0xE0 <= byte < 0xF0:
            more, low, high = 2, 0xA0 if byte == 0xE0 else 0x80, 0x9F if byte == 0xED else 0xBF
        elif 0xF0 <= byte < 0xF5:
            more, low, high = 3, 0x90 if byte == 0xF0 else 0x80, 0x8F if byte == 0xF4 else 0xBF
        else:
            return False
        if end - at < more or not low <= data[at] <= high:
            return False
        for k in range(1, more):
            if not 0x80 <= data[at + k] <= 0xBF:
                return False
        at += more
    return True


@bare_kernel
def equals(data: Bytes, at: int, count: int, name: Bytes) -> bool:
    """Whether `count` bytes are that name."""
    if count != name.size:
        return False
    for k in range(count):
        if data[at + k] != name[k]:
            return False
    return True


@bare_kernel
def _name_end(text: Bytes, at: int, end: int, entries: Words, entry: int) -> int:
    """Return where the name at `at` ends, and hash it into its entry; -1 for an invalid one."""
    value = np.int64(0)
    first = at
    while at < end:
        byte = np.int64(text[at])
        if byte == NAME_END:
            entries[entry + PropertyWord.AT], entries[entry + PropertyWord.NAME_BYTES] = first, at - first
            signed = (value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
            entries[entry + PropertyWord.HASH] = signed
            return at if at > first else -1
        if byte == PAIR_END or byte >= 0x80:
            return -1
        value = value * 31 + byte & 0xFFFFFFFF
        at += 1
    return -1


@bare_kernel
def _is_refused(text: Bytes, entries: Words, entry: int) -> bool:
    """Whether a broker does more about such a property than to keep it."""
    value = entries[entry + PropertyWord.HASH]
    for k in range(REFUSED_HASHES.size):
        if REFUSED_HASHES[k] == value:
            return True
    if entries[entry + PropertyWord.NAME_BYTES] < PREFIX_BYTES:
        return False
    at = entries[entry + PropertyWord.AT]
    first, second, third = text[at], text[at + 1], text[at + 2]
    if first == INNER_START[0] and second == INNER_START[1] and third == INNER_START[2]:
        return True
    return first == TIMER_START[0] and second == TIMER_START[1] and third == TIMER_START[2]


@bare_kernel
def _is_repeated(entries: Words, entry: int) -> bool:
    """Whether an earlier name has this one's hash, as the same name would."""
    value = entries[entry + PropertyWord.HASH]
    for k in range(PropertyWord.HASH, entry, PROPERTY_WORDS):
        if entries[k] == value:
            return True
    return False


@bare_kernel
def _note(text: Bytes, entries: Words, number: int, state: Words) -> bool:
    """Look at WAIT and UNIQ_KEY; False where they are not as clients write them."""
    entry = number * PROPERTY_WORDS
    at, name_bytes = entries[entry + PropertyWord.AT], entries[entry + PropertyWord.NAME_BYTES]
    value_at, value_bytes = at + name_bytes + 1, entries[entry + PropertyWord.BYTES] - name_bytes - 1
    value_hash = entries[entry + PropertyWord.HASH]
    if value_hash == WAIT_HASH and equals(text, at, name_bytes, WAIT_NAME):
        state[SaidWord.WAIT_INDEX] = number
        state[SaidWord.WAITS] = equals(text, value_at, value_bytes, TRUE)
        return state[SaidWord.WAITS] != 0 or equals(text, value_at, value_bytes, FALSE)
    if value_hash == UNIQUE_HASH and equals(text, at, name_bytes, UNIQUE_NAME):
        state[SaidWord.UNIQUE_AT], state[SaidWord.UNIQUE_BYTES] = value_at, value_bytes
        if value_bytes > UNIQUE_KEY_BYTES:
            return False
        for k in range(value_at, value_at + value_bytes):
            if not 0x20 < text[k] < 0x7F or text[k] == ord('"') or text[k] == ord("\\"):
                return False
    return True


@bare_kernel
def read_properties(text: Bytes, count: int, entries: Words, state: Words) -> bool:
    """The properties in text[:count] into `entries` and `state`; False where they are not plain."""
    at, number, bits = np.int64(0), np.int64(0), np.int64(0)
    state[SaidWord.WAIT_INDEX], state[SaidWord.WAITS] = -1, 1
    state[SaidWord.UNIQUE_AT] = state[SaidWord.UNIQUE_BYTES] = 0
    while at < count:
        entry = number * PROPERTY_WORDS
        if number >= PROPERTIES_MAX:
            return False
        end = _name_end(text, at, count, entries, entry)
        if end < 0 or _is_refused(text, entries, entry) or _is_repeated(entries, entry):
            return False
        value_at = end + 1
        end = value_at
        while end < count and text[end] != PAIR_END:
            if text[end] == NAME_END:
                return False
            bits |= np.int64(text[end])
            end += 1
        if end == value_at:
            return False
        entries[entry + PropertyWord.BYTES] = end - at
        if not _note(text, entries, number, state):
            return False
        number += 1
        at = end + 1
    state[SaidWord.COUNT] = number
    return bits < 0x80 or is_utf8(text, 0, count)


@bare_kernel
def _may_be_tree(entries: Words, count: int, capacity: int) -> bool:
    """Whether so many may meet in a bucket that Java's map does not only append to it."""
    mask = min(capacity, TREE_CAPACITY_MIN) - 1
    for k in range(count):
        met, own = 0, _spread(entries[k * PROPERTY_WORDS + PropertyWord.HASH]) & mask
        for other in range(count):
            met += _spread(entries[other * PROPERTY_WORDS + PropertyWord.HASH]) & mask == own
        if met >= BUCKET_ENTRIES_MAX:
            return True
    return False


@bare_kernel
def _spread(value: int) -> int:
    """Spread a hash as Java's HashMap.hash does."""
    code = value & 0xFFFFFFFF
    return code ^ (code >> 16)


@bare_kernel
def order_properties(entries: Words, state: Words, rules: Words, order: Words, keeps_wait: bool) -> bool:
    """The broker's own behind the client's, all in Java's order; False where that is unusual."""
    count, capacity, bytes_of_all = state[SaidWord.COUNT], rules[RulesWord.MAP_CAPACITY], np.int64(0)
    for k in range(rules[RulesWord.OWN_PROPERTIES] * PROPERTY_WORDS):
        entries[count * PROPERTY_WORDS + k] = rules[RulesWord.OWN_FIRST + k]
    count += rules[RulesWord.OWN_PROPERTIES]
    if count >= BUCKET_ENTRIES_MAX and _may_be_tree(entries, count, capacity):
        return False
    while count * 4 > capacity * 3:
        capacity *= 2
    without = state[SaidWord.WAIT_INDEX] if rules[RulesWord.REMOVES_WAIT] and not keeps_wait else -1
    listed = np.int64(0)
    for number in range(count):
        if number == without:
            continue
        entry = number * PROPERTY_WORDS
        bytes_of_all += entries[entry + PropertyWord.BYTES] + 1
        key = (_spread(entries[entry + PropertyWord.HASH]) & (capacity - 1)) << INDEX_BITS | number
        at = listed
        while at > 0 and order[at - 1] > key:
            order[at] = order[at - 1]
            at -= 1
        order[at] = key
        listed += 1
    state[SaidWord.OUT_BYTES] = bytes_of_all if rules[RulesWord.TRAILING] else bytes_of_all - 1
    order[listed] = -1
    return True


@bare_kernel
def write_properties(
    data: Bytes, at: int, text: Bytes, own_text: Bytes, entries: Words, state: Words, rules: Words, order: Words
) -> None:
    """The property string of state[SaidWord.OUT_BYTES] bytes to data[at:]."""
    end, k = at + state[SaidWord.OUT_BYTES], 0
    while order[k] >= 0:
        number = order[k] & INDEX_MASK
        entry = number * PROPERTY_WORDS
        source, count = entries[entry + PropertyWord.AT], entries[entry + PropertyWord.BYTES]
        if number < state[SaidWord.COUNT]:
            copy_bytes(data, at, text, source, count)
        else:
            copy_bytes(data, at, own_text, source, count)
        at += count
        if at < end:
            data[at] = PAIR_END
            at += 1
        k += 1
