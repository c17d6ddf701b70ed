"""Where values lie in many property strings, compiled: those of some names, or all pairs.

Follows RocketMQ's parser as `store.message.properties` does (spec: store-formats, section 3): a pair without a name or
a value does not count, and of two with one name the later counts. Columns are int64, a row of a matrix each.
"""

# mypy: disable-error-code="return-value"

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ipc.arrays import Bytes, Int32s, Words
from ipc.compiled.kernels import bare_kernel, kernel
from ipc.compiled.memory import EQUAL_BYTES, equal_bytes, trailing_zeros
from ipc.compiled.texts import find_byte, name_hash, same_bytes
from store.message import properties

NAME_SEPARATOR, PAIR_SEPARATOR = ord(properties.NAME_SEPARATOR), ord(properties.PAIR_SEPARATOR)
TAGS_NAME = np.frombuffer(properties.TAGS.encode(), np.uint8)
PAIR_BYTES_MIN = 4  # with a separator to the next
STRING_BYTES_MAX = (1 << 15) - 1  # a record has two signed bytes for their length
TABLE_WORDS = 1 << 14  # twice as many as such a string can have pairs


class Value(IntEnum):
    """Columns of a value: where it begins, and its bytes, 0 where it is missing."""

    AT, BYTES = 0, 1


NO_BITS = 0


class Pair(IntEnum):
    """Columns of a pair: where its name and its value begin, and their bytes."""

    NAME_AT, NAME_BYTES, VALUE_AT, VALUE_BYTES = 0, 1, 2, 3


class Separators(NamedTuple):
    """Places of separators: those in the EQUAL_BYTES bytes from `block` on as bits, of which the passed ones are 0."""

    block: int
    bits: int


@bare_kernel
def _next_separator(array: Bytes, at: int, end: int, ahead: Separators) -> tuple[int, Separators]:
    """The first pair's separator in [at, end), `end` without one; many are found at once."""
    block, bits = ahead.block, ahead.bits
    while bits == 0:
        if block + 2 * EQUAL_BYTES > array.size:
            return find_byte(array, at, end, PAIR_SEPARATOR), Separators(block, NO_BITS)
        block += EQUAL_BYTES
        if block >= end:
            return end, Separators(block, NO_BITS)
        bits = equal_bytes(array, block, PAIR_SEPARATOR)
    return min(block + trailing_zeros(bits), end), Separators(block, bits & (bits - 1))


@bare_kernel
def find_value(array: Bytes, at: int, end: int, name: Bytes) -> tuple[int, int]:
    """Where the value of the property of that name begins and ends in the string [at, end); both `at` without one."""
    first, behind = at, at
    ahead = Separators(at - EQUAL_BYTES, NO_BITS)
    while at < end:
        stop, ahead = _next_separator(array, at, end, ahead)
        value = at + name.size + 1
        if value < stop and array[value - 1] == NAME_SEPARATOR and same_bytes(array, at, name, 0, name.size):
            first, behind = value, stop
        at = stop + 1
    return first, behind


@kernel
def find_values(array: Bytes, starts: Words, lengths: Words, name: Bytes, values: Words) -> None:
    """Write where the value of the property of that name lies in each string: the rows of `Value`."""
    for row in range(starts.size):
        first, behind = find_value(array, starts[row], starts[row] + lengths[row], name)
        values[Value.AT, row], values[Value.BYTES, row] = first, behind - first


@bare_kernel
def _without_dropped(pairs: Words, first: int, end: int) -> int:
    """Move the pairs that have a value together; return where they end."""
    kept = first
    for number in range(first, end):
        if pairs[Pair.VALUE_BYTES, number] > 0:
            for column in range(pairs.shape[0]):
                pairs[column, kept] = pairs[column, number]
            kept += 1
    return kept


@kernel
def find_pairs(array: Bytes, starts: Words, lengths: Words, pairs: Words, ends: Int32s, table: Words) -> int:
    """Write the pairs of all strings, one behind the other, and where those of each string end; return how many.

    `pairs` has room for a pair for every PAIR_BYTES_MIN bytes of a string and one more, `ends` begins with 0, `table`
    has TABLE_WORDS zeros. No string is longer than STRING_BYTES_MAX.
    """
    count = np.int64(0)
    seen = np.int64(0)  # pairs, also those that a later one replaced: table has the number of the last with a name + 1
    ends[0] = 0
    for row in range(starts.size):
        at, end = starts[row], starts[row] + lengths[row]
        first, first_seen, mask = count, seen, np.int64(15)
        while mask < lengths[row] // 2:
            mask = 2 * mask + 1
        ahead = Separators(at - EQUAL_BYTES, NO_BITS)
        while at < end:
            stop, ahead = _next_separator(array, at, end, ahead)
            equals = find_byte(array, at, stop, NAME_SEPARATOR)
            if at < equals < stop - 1:
                slot = name_hash(array, at, equals - at, 0) & mask
                while table[slot] > first_seen:
                    other = first + table[slot] - 1 - first_seen
                    is_alike = pairs[Pair.NAME_BYTES, other] == equals - at
                    if is_alike and same_bytes(array, pairs[Pair.NAME_AT, other], array, at, equals - at):
                        pairs[Pair.VALUE_BYTES, other] = 0
                        break
                    slot = (slot + 1) & mask
                table[slot] = seen + 1
                pairs[Pair.NAME_AT, count], pairs[Pair.NAME_BYTES, count] = at, equals - at
                pairs[Pair.VALUE_AT, count], pairs[Pair.VALUE_BYTES, count] = equals + 1, stop - equals - 1
                count, seen = count + 1, seen + 1
            at = stop + 1
        count = _without_dropped(pairs, first, count)
        ends[row + 1] = count
    return count
