"""Copies of many byte ranges of an array, compiled: one behind the other, as hexadecimal digits, or each once."""

# mypy: disable-error-code="no-any-return,return-value"

from __future__ import annotations

import numpy as np

from ipc.arrays import Bytes, Int32s, Words
from ipc.compiled.kernels import bare_kernel, kernel
from ipc.compiled.memory import copy_bytes, load_be32, store_be64
from ipc.compiled.texts import eight_hexadecimals, is_ascii, name_hash, same_bytes

WORD_BYTES = 4  # as many as eight digits say


@kernel
def copy_spans(array: Bytes, starts: Words, lengths: Words, ends: Int32s, out: Bytes) -> None:
    """Copy the ranges, and write where each ends in `out`, behind a 0.

    `out` has room for all. The caller knows that the ranges lie in the array.
    """
    at = np.int64(0)
    ends[0] = 0
    for row in range(starts.size):
        copy_bytes(out, at, array, starts[row], lengths[row])
        at += lengths[row]
        ends[row + 1] = at


@bare_kernel
def _is_same(array: Bytes, starts: Words, lengths: Words, row: int, other: int) -> bool:
    return lengths[row] == lengths[other] and same_bytes(array, starts[row], array, starts[other], lengths[row])


@kernel
def number_spans(array: Bytes, starts: Words, lengths: Words, numbers: Int32s, firsts: Words, table: Words) -> int:
    """Number the distinct ranges; write the number of each, and which has it first; return how many there are.

    -1: more than `firsts` has room for. `table` has zeros, a power of two and more than that. A range of a negative
    length is none, and gets 0.
    """
    count, mask, number = np.int64(0), table.size - 1, np.int64(0)
    for row in range(starts.size):
        if lengths[row] < 0:
            numbers[row] = 0
            continue
        if number == 0 or not _is_same(array, starts, lengths, row, firsts[number - 1]):  # as the one before it
            slot = name_hash(array, starts[row], lengths[row], 0) & mask
            number = table[slot]
            while number != 0 and not _is_same(array, starts, lengths, row, firsts[number - 1]):
                slot = (slot + 1) & mask
                number = table[slot]
            if number == 0:
                if count == firsts.size:
                    return -1
                firsts[count] = row
                count += 1
                number = table[slot] = count
        numbers[row] = number - 1
    return count


@kernel
def is_all_ascii(array: Bytes) -> bool:
    """Whether all bytes are ASCII."""
    return is_ascii(array, 0, array.size)


@kernel
def write_hexadecimals(array: Bytes, starts: Words, count: int, out: Bytes, first: int, stride: int) -> None:
    """Write the `count` bytes at each start as digits: a row's from `first` on, the next row's `stride` further on.

    `count` is a multiple of WORD_BYTES.
    """
    for row in range(starts.size):
        at = first + row * stride
        for k in range(0, count, WORD_BYTES):
            store_be64(out, at + 2 * k, eight_hexadecimals(load_be32(array, starts[row] + k)))
