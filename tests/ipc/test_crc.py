"""Every way to a CRC gives zlib's."""

import zlib
from collections.abc import Callable

import numpy as np
import pytest
from numba import njit

from ipc import machine
from ipc.compiled import carryless, compiler, crc
from ipc.machine import CPU_FILE

assert compiler  # numba knows our declarations by it
WAYS = (crc.crc32_of_tables, crc.crc32, *((crc.crc32_of_zlib,) if crc.has_zlib() else ()))


@pytest.mark.parametrize("way", WAYS)
def test_every_length_at_every_alignment(way: Callable[[np.ndarray, int, int], int]) -> None:
    data = np.frombuffer(np.random.default_rng(5).bytes(5000), np.uint8)
    for start in (0, 1, 7, 19):
        for count in (*range(600), 255, 1024, 4321):
            assert way(data, start, count) == zlib.crc32(data[start : start + count].tobytes())


WIDE = {"avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl", "vpclmulqdq"}
FLAGS = set(next(line for line in CPU_FILE.read_text().splitlines() if line.startswith(machine.FLAGS)).split())


@pytest.mark.skipif(
    crc.INSTRUCTION != "+pclmul" or not crc.HAS_INSTRUCTION, reason="this machine is no x86-64 that multiplies so"
)
@pytest.mark.parametrize("lanes", [None, carryless.LANES, *[carryless.WIDE_LANES] * (WIDE <= FLAGS)])
def test_carry_less_multiplication_of_any_width(lanes: int | None) -> None:
    instruction = crc.crc_of_products(lanes)

    @njit
    def way(data: np.ndarray, start: int, count: int) -> int:
        return instruction(data, start, count)

    data = np.frombuffer(np.random.default_rng(6).bytes(70000), np.uint8)
    for start in range(3):
        for count in (*range(4, 600), 1024, 4321, 65536):
            assert way(data, start, count) == zlib.crc32(data[start : start + count].tobytes())


def test_the_factors_are_the_published_ones() -> None:
    powers = {544: 0x154442BD4, 480: 0x1C6E41596, 160: 0x1751997D0, 96: 0x0CCAA009E, 64: 0x163CD6124}
    assert {exponent: carryless.power_of_x(exponent) for exponent in powers} == powers
