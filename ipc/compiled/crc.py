"""CRC-32 for kernels: by carry-less multiplication where the machine has it, else by zlib's own function or a table.

A batch is encoded, and a segment verified, in one compiled call; going through Python's zlib would cost a call of the
interpreter for each body.
"""

# mypy: disable-error-code="no-any-return,return-value"

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import binding
from numba import types

from ipc.arrays import Bytes
from ipc.compiled.atomics import address_of
from ipc.compiled.carryless import COUNT_MIN, crc_instruction, lanes_of_host
from ipc.compiled.compiler import kernel

POLYNOMIAL = 0xEDB88320
STEP = 16


def _has_zlib() -> bool:
    """Make libz's symbols known to compiled code, where the machine has it."""
    try:
        binding.load_library_permanently("libz.so.1")
    except RuntimeError:
        return False
    return True


def _tables() -> npt.NDArray[np.uint32]:
    """table[k][b]: the CRC of byte b followed by k zero bytes (slicing-by-16)."""
    tables = np.zeros((STEP, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for k in range(1, STEP):
        previous = tables[k - 1]
        tables[k] = (previous >> np.uint32(8)) ^ tables[0][previous & np.uint32(0xFF)]
    return tables


TABLES = _tables()
_zlib_crc32: Any = types.ExternalFunction("crc32", types.uint64(types.uint64, types.int64, types.uint32))


@kernel
def crc32_of_zlib(data: Bytes, start: int, count: int) -> int:
    """CRC-32 of `count` bytes from `start`, by zlib."""
    if count == 0:
        return np.int64(0)
    return np.int64(_zlib_crc32(np.uint64(0), address_of(data, start), np.uint32(count)))


@kernel
def crc32_of_tables(data: Bytes, start: int, count: int) -> int:
    """CRC-32 of `count` bytes from `start`, sixteen bytes a step."""
    crc = np.uint32(0xFFFFFFFF)
    at, end = start, start + count
    while end - at >= STEP:
        low = np.uint32(data[at]) | np.uint32(data[at + 1]) << 8 | np.uint32(data[at + 2]) << 16
        crc ^= low | np.uint32(data[at + 3]) << 24
        folded = TABLES[15, crc & 0xFF] ^ TABLES[14, (crc >> 8) & 0xFF]
        folded ^= TABLES[13, (crc >> 16) & 0xFF] ^ TABLES[12, crc >> 24]
        for k in range(4, STEP):
            folded ^= TABLES[STEP - 1 - k, data[at + k]]
        crc = folded
        at += STEP
    while at < end:
        crc = (crc >> np.uint32(8)) ^ TABLES[0, (crc ^ data[at]) & 0xFF]
        at += 1
    return np.int64(crc ^ np.uint32(0xFFFFFFFF))


LANES = lanes_of_host()
_multiplied: Any = crc_instruction(LANES or 1)


@kernel
def crc32_of_products(data: Bytes, start: int, count: int) -> int:
    """CRC-32 of `count` bytes from `start`, by carry-less multiplication."""
    if count < COUNT_MIN:
        return crc32_of_tables(data, start, count)
    return _multiplied(data, start, count)


_others: Any = crc32_of_zlib if _has_zlib() else crc32_of_tables
crc32: Any = crc32_of_products if LANES else _others
