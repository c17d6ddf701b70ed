"""Which machines this runs on: compiled code is made for their byte order, and calls Linux by its numbers there."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TypeVar

from ipc.module_names import DISTRIBUTION

KNOWN = ("x86_64", "aarch64")  # both little-endian; a big-endian Arm calls itself aarch64_be

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


def of_this(by_machine: Mapping[str, Number]) -> Number:
    """Return what of the machines' is this one's. Raises MachineUnknown."""
    require_known()
    return by_machine[os.uname().machine]
