"""CRC-32 for kernels: by instructions of the machine's, else by zlib's own function or a table.

x86-64 multiplies without carries (`ipc.compiled.carryless`), aarch64 has instructions for this very CRC.

A batch is encoded, and a segment verified, in one compiled call; going through Python's zlib would cost a call of the
interpreter for each body.
"""

# mypy: disable-error-code="no-any-return,return-value"

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ipc.arrays import Bytes
from ipc.compiled.atomics import address_of
from ipc.compiled.kernels import compiles, external, instruction, ir, kernel, types
from ipc.machine import of_this

POLYNOMIAL = 0xEDB88320
STEP = 16
COUNT_MIN = 4  # the starting value covers the first four bytes
INSTRUCTION = of_this({"x86_64": "+pclmul", "aarch64": "+crc"})
WORD_BYTES = 8
ONES = 0xFFFFFFFF


def has_zlib() -> bool:
    """Make libz's symbols known to compiled code, where the machine has it."""
    from llvmlite import binding

    try:
        binding.load_library_permanently("libz.so.1")
    except RuntimeError:
        return False
    return True


def _has_instruction() -> bool:
    """Whether the machine that is compiled for has the instruction."""
    from numba.core import codegen, config

    numba_codegen: Any = codegen  # untyped
    given: str | None = vars(config)["CPU_FEATURES"]
    return INSTRUCTION in (numba_codegen.get_host_cpu_features() if given is None else given).split(",")


def crc_of_products(lanes: int | None = None) -> Any:
    """The compiled piece for an x86-64: crc(array, start, count), count >= COUNT_MIN; if given, for so many lanes."""

    def crc(_typing: Any, array: Any, start: Any, count: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            from ipc.compiled.carryless import fold

            return fold(context, builder, signature, arguments, lanes)

        return types.int64(array, types.int64, types.int64), generate

    return instruction(crc)


def _crc_more(bits: int, suffix: str) -> Any:
    """Return aarch64's instruction that adds the `bits` at an address to a CRC."""

    def more(_typing: Any, crc: Any, address: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            taken = ir.IntType(max(bits, 32))
            shape = ir.FunctionType(ir.IntType(32), [ir.IntType(32), taken])
            function = builder.module.declare_intrinsic(f"llvm.aarch64.crc32{suffix}", (), shape)
            value = builder.load(builder.inttoptr(arguments[1], ir.IntType(bits).as_pointer()), align=1)
            added = value if bits >= taken.width else builder.zext(value, taken)
            result = builder.call(function, [builder.trunc(arguments[0], ir.IntType(32)), added])
            return builder.zext(result, ir.IntType(64))

        return types.int64(types.int64, types.int64), generate

    return instruction(more)


_crc_of_word: Any = _crc_more(64, "x")
_crc_of_byte: Any = _crc_more(8, "b")


@kernel
def crc32_of_words(data: Bytes, start: int, count: int) -> int:
    """CRC-32 of at least COUNT_MIN bytes from `start`, eight an instruction; compiled on aarch64 alone."""
    crc = ONES
    at = address_of(data, start)
    end = at + count
    while end - at >= WORD_BYTES:
        crc = _crc_of_word(crc, at)
        at += WORD_BYTES
    while at < end:
        crc = _crc_of_byte(crc, at)
        at += 1
    return crc ^ ONES


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
_zlib_crc32: Any = external("crc32", "uint64", "uint64", "int64", "uint32")


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


HAS_INSTRUCTION = not compiles() or _has_instruction()  # carried code is for machines that have it
_by_instruction: Any = of_this({"x86_64": crc_of_products(), "aarch64": crc32_of_words})


@kernel
def crc32_of_instructions(data: Bytes, start: int, count: int) -> int:
    """CRC-32 of `count` bytes from `start`, by the machine's own instructions."""
    if count < COUNT_MIN:
        return crc32_of_tables(data, start, count)
    return _by_instruction(data, start, count)


crc32: Any = crc32_of_instructions if HAS_INSTRUCTION else crc32_of_zlib if has_zlib() else crc32_of_tables
