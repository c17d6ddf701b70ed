"""Kernels for another kind of machine: its code, with its instructions and its numbers of system calls."""

from __future__ import annotations

import struct
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numba
import pytest

from tools.dev.carried import foreign
from tools.dev.carried.__main__ import why_not_for
from tools.dev.packaging import backend

MACHINE = "aarch64"
ELF_AARCH64 = 183
CRC32X, ITS_REGISTERS = 0x9AC04C00, 0x001F03FF
MOVE_FUTEX = 0x52800000 | 98 << 5  # to w0: the system call's number
LSE_ADD, ITS_WORDS = 0xF8200000, 0x00DF03FF  # ldadd, with any ordering
WORDS, NUMBER = numba.types.Array(numba.int64, 1, "C"), numba.int64
BYTES = numba.types.Array(numba.uint8, 1, "C")


def test_code_is_that_machines() -> None:
    forms = [
        ("ipc.compiled.atomics.publish", (WORDS, NUMBER, NUMBER)),
        ("ipc.compiled.atomics.sign_on", (WORDS, NUMBER)),
        ("ipc.compiled.crc.crc32_of_instructions", (BYTES, NUMBER, NUMBER)),
    ]
    with ProcessPoolExecutor(1, get_context("spawn"), foreign.take_for, (MACHINE,)) as process:
        made = {each.name.rpartition(".")[2]: each for each in process.submit(foreign.compile_forms, forms).result()}
    assert {struct.unpack_from("<H", each.code, 18)[0] for each in made.values()} == {ELF_AARCH64}
    publish, sign_on, crc = (_instructions(made[name.rpartition(".")[2]].code) for name, _arguments in forms)
    assert MOVE_FUTEX in publish, "the number of futex is that of another machine"
    assert LSE_ADD in {one & ~ITS_WORDS for one in sign_on}
    assert CRC32X in {one & ~ITS_REGISTERS for one in crc}


def _instructions(code: bytes) -> set[int]:
    return {one for (one,) in struct.iter_unpack("<I", code[: len(code) // 4 * 4])}


def test_a_compiler_that_is_missing_is_named() -> None:
    said = "no absent-gcc (on Debian the package gcc-aarch64-linux-gnu)"
    assert why_not_for(MACHINE, "absent-gcc") == said


def test_no_wheel_names_a_machine_that_it_has_no_code_for(tmp_path: Path) -> None:
    with pytest.raises(backend.NoLibrary, match="no compiled code of these sources for riscv64"):
        backend.build_wheel(str(tmp_path), {backend.MACHINE: "riscv64"})
    assert not list(tmp_path.iterdir())
