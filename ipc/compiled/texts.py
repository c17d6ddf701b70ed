"""Compiled pieces for bytes that are text: comparing, finding, and numbers in digits. The caller checks bounds."""

# mypy: disable-error-code="no-any-return,return-value"

from __future__ import annotations

import numpy as np

from ipc.arrays import Bytes
from ipc.compiled.kernels import bare_kernel
from ipc.compiled.memory import EQUAL_BYTES, equal_bytes, load_be64, trailing_zeros

WORD_BYTES = 8
HIGH_BITS = int.from_bytes(b"\x80" * WORD_BYTES, "big", signed=True)
ZERO, LETTER_A, MINUS = ord("0"), ord("A"), ord("-")
NO_NUMBER = -(1 << 62)
HASH_FACTOR, SEEDED_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64), 0x100000001B3


@bare_kernel
def same_bytes(one: Bytes, at: int, other: Bytes, other_at: int, count: int) -> bool:
    """Whether the `count` bytes at both places are equal; eight are compared at a time."""
    while count >= WORD_BYTES:
        if load_be64(one, at) != load_be64(other, other_at):
            return False
        at, other_at, count = at + WORD_BYTES, other_at + WORD_BYTES, count - WORD_BYTES
    for k in range(count):
        if one[at + k] != other[other_at + k]:
            return False
    return True


@bare_kernel
def is_text(array: Bytes, at: int, count: int, text: Bytes) -> bool:
    """Whether the `count` bytes at `at` are that text."""
    return count == text.size and same_bytes(array, at, text, 0, count)


@bare_kernel
def begins_with(array: Bytes, at: int, end: int, text: Bytes) -> bool:
    """Whether the bytes of [at, end) begin with that text, which is not empty; most differ in the first byte."""
    return end - at >= text.size and array[at] == text[0] and same_bytes(array, at, text, 0, text.size)


@bare_kernel
def name_hash(array: Bytes, at: int, count: int, number: int) -> int:
    """A hash of a name and a number, not negative; eight bytes a step."""
    code = np.int64(number + 1) * np.int64(HASH_FACTOR)
    end = at + count
    while at + WORD_BYTES <= end:
        code = (code ^ load_be64(array, at)) * np.int64(HASH_FACTOR)
        code ^= code >> 29
        at += WORD_BYTES
    while at < end:
        code = (code ^ np.int64(array[at])) * np.int64(HASH_FACTOR)
        at += 1
    return (code ^ (code >> 32)) & np.int64(0x7FFFFFFFFFFFFFFF)


@bare_kernel
def seeded_hash(array: Bytes, at: int, count: int, seed: int) -> int:
    """A hash of bytes that a client chose, byte by byte: in `name_hash` two high bits cancel whatever the seed is."""
    code = np.int64(seed)
    for k in range(at, at + count):
        code = (code ^ np.int64(array[k])) * np.int64(SEEDED_FACTOR)
    return code ^ code >> 29


@bare_kernel
def find_byte(array: Bytes, at: int, end: int, value: int) -> int:
    """The first place of `value` in [at, end), `end` without one."""
    while at < end:
        if at + EQUAL_BYTES > len(array):
            while at < end and array[at] != value:
                at += 1
            return at
        matches = equal_bytes(array, at, value)
        if matches != 0:
            return min(at + trailing_zeros(matches), end)
        at += EQUAL_BYTES
    return end


@bare_kernel
def is_ascii(array: Bytes, at: int, end: int) -> bool:
    """Whether the bytes of [at, end) are ASCII; eight are tested at a time."""
    bits = np.int64(0)
    while end - at >= WORD_BYTES:
        bits |= load_be64(array, at) & HIGH_BITS
        at += WORD_BYTES
    for k in range(at, end):
        bits |= np.int64(array[k]) & 0x80
    return bits == 0


@bare_kernel
def whole_number(data: Bytes, at: int, count: int, digits_max: int) -> int:
    """A whole number as Java writes it, NO_NUMBER for anything else."""
    end, is_negative = at + count, False
    if count > 1 and data[at] == MINUS:
        at, is_negative = at + 1, True
    digits = end - at
    if not 0 < digits <= digits_max or (data[at] == ZERO and (digits > 1 or is_negative)):
        return NO_NUMBER
    value = np.int64(0)
    while at < end:
        digit = np.int64(data[at]) - ZERO
        if not 0 <= digit <= 9:
            return NO_NUMBER
        value = value * 10 + digit
        at += 1
    return -value if is_negative else value


@bare_kernel
def decimal_bytes(value: int) -> int:
    """How many digits a number that is not negative has."""
    count = 1
    while value >= 10:
        value //= 10
        count += 1
    return count


@bare_kernel
def write_decimal(out: Bytes, at: int, value: int) -> int:
    """Write a number in decimal digits; return where it ends."""
    if value < 0:
        out[at] = MINUS
        at, value = at + 1, -value
    end = at + decimal_bytes(value)
    for k in range(end - 1, at - 1, -1):
        out[k] = ZERO + value % 10
        value //= 10
    return end


@bare_kernel
def eight_hexadecimals(value: int) -> int:
    """The eight hexadecimal digits of the lower 32 bits, as text in a big-endian word."""
    spread = value & 0xFFFFFFFF
    spread = (spread | spread << 16) & 0x0000FFFF0000FFFF
    spread = (spread | spread << 8) & 0x00FF00FF00FF00FF
    spread = (spread | spread << 4) & 0x0F0F0F0F0F0F0F0F  # a digit's value in each byte
    letters = (spread + 0x0606060606060606) >> 4 & 0x0101010101010101
    return spread + 0x3030303030303030 + letters * (LETTER_A - ZERO - 10)


@bare_kernel
def write_hexadecimal(out: Bytes, at: int, value: int, digits: int) -> int:
    """Write the last `digits` hexadecimal digits of a number; return where they end."""
    for k in range(at + digits - 1, at - 1, -1):
        digit = value & 0xF
        out[k] = ZERO + digit if digit < 10 else LETTER_A + digit - 10
        value >>= 4
    return at + digits
