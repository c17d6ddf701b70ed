"""Both ways to a CRC give zlib's."""

import zlib
from collections.abc import Callable

import numpy as np
import pytest

from engine import crc

WAYS = [crc.crc32_of_tables, crc.crc32] if crc.crc32 is not crc.crc32_of_tables else [crc.crc32_of_tables]


@pytest.mark.parametrize("way", WAYS)
def test_every_length_at_every_alignment(way: Callable[[np.ndarray, int, int], int]) -> None:
    data = np.frombuffer(np.random.default_rng(5).bytes(5000), np.uint8)
    for start in range(20):
        for count in (*range(70), 255, 1024, 4321):
            assert way(data, start, count) == zlib.crc32(data[start : start + count].tobytes())
