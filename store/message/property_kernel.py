"""Where values lie in many property strings, compiled: that of one name, or all pairs.

Follows RocketMQ's parser as `store.message.properties` does (spec: store-formats, section 3): a pair without a name or
a value does not count, and of two with one name the later counts. Columns are int64, a row of a matrix each.
"""

# mypy: disable-error-code="return-value"

from __future__ import annotations

from enum import IntEnum

import numpy as np

from ipc.arrays import Bytes, Int32s, Words
from ipc.compiled.kernels import bare_kernel, kernel
from ipc.compiled.texts import find_byte, name_hash, same_bytes
from store.message import properties

NAME_SEPARATOR, PAIR_SEPARATOR = ord(properties.NAME_SEPARATOR), ord(properties.PAIR_SEPARATOR)
PAIR_BYTES_MIN = 4  # with a separator to the next
STRING_BYTES_MAX = (1 << 15) - 1  # a record has two signed bytes for their length
TABLE_WORDS = 1 << 14  # twice as many as such a string can have pairs


class Value(IntEnum):
    """Columns of a value: where it begins, and its bytes, 0 where it is missing."""

    AT, BYTES = 0, 1


class Pair(IntEnum):
    """Columns of a pair: where its name and its value begin, and their bytes."""

    NAME_AT, NAME_BYTES, VALUE_AT, VALUE_BYTES = 0, 1, 2, 3


@kernel
def find_property(array: Bytes, starts: Words, lengths: Words, name: Bytes, values: Words) -> int:
    """Write where the value of the property of that name lies in each string; return how many have one."""
    count = 0
    for row in range(starts.size):
        at, end = starts[row], starts[row] + lengths[row]
        value_at, value_end = at, at
        while at < end:
            stop = find_byte(array, at, end, PAIR_SEPARATOR)
            value = at + name.size + 1
            if value < stop and array[value - 1] == NAME_SEPARATOR and same_bytes(array, at, name, 0, name.size):
                value_at, value_end = value, stop
            at = stop + 1
        values[Value.AT, row], values[Value.BYTES, row] = value_at, value_end - value_at
        count += value_end > value_at
    return count


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
        while at < end:
            stop = find_byte(array, at, end, PAIR_SEPARATOR)
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
