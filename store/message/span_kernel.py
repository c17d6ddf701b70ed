"""Copies of many byte ranges of an array, compiled: one behind the other, as they are or as hexadecimal digits."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np

from ipc.arrays import Bytes, Int32s, Words
from ipc.compiled.kernels import kernel
from ipc.compiled.memory import copy_bytes, load_be32, store_be64
from ipc.compiled.texts import eight_hexadecimals, is_ascii

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
