"""The machine before a measurement: memory that the host has already given to it, and a disk that rests.

In a virtual machine the first touch of memory that was idle for a while faults in the host, at a fraction of the speed
(here 0.45 instead of 8 GB/s). The side measured second would profit from the first, so each side gets warm memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

GIB = 1 << 30
READ_BYTES = 1 << 20
TOUCH = "import sys, numpy; numpy.ones(int(sys.argv[1]), numpy.uint8)"
TIMEOUT_SECONDS = 300.0


def warm_memory(size_bytes: int = 6 * GIB) -> None:
    """Touch that much memory (at most half of what is free), in a process that gives it back at once."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size = min(size_bytes, free // 2)
    subprocess.run([sys.executable, "-c", TOUCH, str(size)], check=True, timeout=TIMEOUT_SECONDS)


def rest_disk() -> None:
    """Bring to disk what was written before: latencies are then not those of gigabytes that a load left behind."""
    os.sync()


def read_into_cache(directory: Path) -> None:
    """Have all files below it in the page cache: which of two logs still lies there says who was filled last."""
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        with path.open("rb", buffering=0) as file:
            while file.read(READ_BYTES):
                pass
