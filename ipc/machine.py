"""Which machines this runs on: compiled code is made for their byte order, and calls Linux by its numbers there."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from ipc.module_names import DISTRIBUTION

KNOWN = ("x86_64", "aarch64")  # both little-endian; a big-endian Arm calls itself aarch64_be
CPU_FILE, CPU_FILE_BYTES = Path("/proc/cpuinfo"), 16 * 1024  # the first CPU's part of it
FLAGS = ("flags", "Features")  # what begins its line of instructions, on either machine

Number = TypeVar("Number")


class MachineUnknown(ImportError):
    """Raised on a machine whose byte order, word size or system calls this is not made for.

    Next: run it on x86-64 or aarch64, with a Python of 64 bits; from elsewhere read through `slipstream flight`, with
    any client of Arrow Flight.
    """

    code = "MACHINE_UNKNOWN"

    def __init__(self, machine: str, bits: int) -> None:
        super().__init__(
            f"{DISTRIBUTION} runs on {' and '.join(KNOWN)} with a Python of 64 bits, this is {machine} with {bits};"
            " read a store from here through `slipstream flight` on such a machine, with any client of Arrow Flight"
        )


def require_known() -> None:
    """Raise MachineUnknown unless this is a machine that everything here is made for."""
    machine, bits = os.uname().machine, sys.maxsize.bit_length() + 1
    if machine not in KNOWN or bits != 64:
        raise MachineUnknown(machine, bits)


class Baseline(NamedTuple):
    """The CPUs that code is compiled for: LLVM's name, instructions beyond it, Linux's names of what they have."""

    name: str
    instructions: tuple[str, ...]
    flags: frozenset[str]

    @property
    def features(self) -> str:
        """Return the instructions as LLVM takes them."""
        return ",".join(f"+{each}" for each in self.instructions)


BASELINES = {
    "x86_64": Baseline(
        "x86-64-v3", ("pclmul",), frozenset("abm avx avx2 bmi1 bmi2 f16c fma movbe pclmulqdq xsave".split())
    ),
    "aarch64": Baseline("generic", ("v8.2a", "crc", "lse"), frozenset("asimd asimdrdm atomics crc32".split())),
}


@cache
def baseline() -> Baseline | None:
    """Return what code is compiled for here; None where it is compiled for the CPU itself: an older one."""
    of_machine = BASELINES.get(os.uname().machine)
    try:
        with CPU_FILE.open("rb") as file:
            text = file.read(CPU_FILE_BYTES).decode("ascii", "replace")
    except OSError:
        return None
    flags = next((line for line in text.splitlines() if line.startswith(FLAGS)), "")
    return of_machine if of_machine and of_machine.flags <= set(flags.partition(":")[2].split()) else None


def of_this(by_machine: Mapping[str, Number]) -> Number:
    """Return what of the machines' is this one's. Raises MachineUnknown."""
    require_known()
    return by_machine[os.uname().machine]
