"""CRC-32 (the one of zlib) for kernels, sixteen bytes a step.

zlib's own is called through the interpreter, one body a call: too slow where a batch is encoded in one compiled call.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ipc.compiling import kernel
from ipc.region import Bytes

POLYNOMIAL = 0xEDB88320
STEP = 16


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


@kernel
def crc32(data: Bytes, start: int, count: int) -> int:
    """CRC-32 of `count` bytes from `start`, as zlib.crc32 gives it."""
    crc = np.uint32(0xFFFFFFFF)
    at, end = start, start + count
    while end - at >= STEP:
        low = (
            np.uint32(data[at])
            | np.uint32(data[at + 1]) << 8
            | np.uint32(data[at + 2]) << 16
            | np.uint32(data[at + 3]) << 24
        )
        crc ^= low
        crc = (
            TABLES[15, crc & 0xFF]
            ^ TABLES[14, (crc >> 8) & 0xFF]
            ^ TABLES[13, (crc >> 16) & 0xFF]
            ^ TABLES[12, crc >> 24]
            ^ TABLES[11, data[at + 4]]
            ^ TABLES[10, data[at + 5]]
            ^ TABLES[9, data[at + 6]]
            ^ TABLES[8, data[at + 7]]
            ^ TABLES[7, data[at + 8]]
            ^ TABLES[6, data[at + 9]]
            ^ TABLES[5, data[at + 10]]
            ^ TABLES[4, data[at + 11]]
            ^ TABLES[3, data[at + 12]]
            ^ TABLES[2, data[at + 13]]
            ^ TABLES[1, data[at + 14]]
            ^ TABLES[0, data[at + 15]]
        )
        at += STEP
    while at < end:
        crc = (crc >> np.uint32(8)) ^ TABLES[0, (crc ^ data[at]) & 0xFF]
        at += 1
    return int(crc ^ np.uint32(0xFFFFFFFF))
