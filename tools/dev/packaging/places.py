"""Where the library of each kind of machine lies: only this machine's is beside the sources that run here."""

from __future__ import annotations

import os
from pathlib import Path

from ipc.compiled import carried
from ipc.module_names import SOURCES


def folder_of(machine: str) -> Path:
    """Return the folder of the library for machines of that kind, and of its list."""
    return carried.FOLDER if machine == os.uname().machine else SOURCES / "build" / f"carried-{machine}"
