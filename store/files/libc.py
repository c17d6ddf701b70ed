"""What Linux has and Python has no call for: advice about memory, pages in the cache, exchange of names, writing out.

Its own module, because few need it and loading ctypes costs more than saying that there is no store.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

MADV_POPULATE_WRITE = 23  # Linux 5.14
SYNC_FILE_RANGE_WRITE = 2
RENAME_EXCHANGE, AT_FDCWD = 2, -100  # renameat2

_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.madvise.restype = ctypes.c_int
_libc.renameat2.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
_libc.renameat2.restype = ctypes.c_int
_libc.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
_libc.sync_file_range.restype = ctypes.c_int
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_libc.mincore.restype = ctypes.c_int


def start_writing(fd: int, start: int, length: int) -> None:
    """Begin to write the range of a file out; whether it can, nobody asks."""
    _libc.sync_file_range(fd, start, length, SYNC_FILE_RANGE_WRITE)


def exchange_names(one: Path, other: Path) -> None:
    """Two files or directories take each other's names. Raises OSError."""
    at = AT_FDCWD
    if _libc.renameat2(at, os.fsencode(one), at, os.fsencode(other), RENAME_EXCHANGE):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(one), None, str(other))


def pages_in_cache(address: int, length: int, pages: int) -> None:
    """A byte for each page of a mapping, into the memory at `pages`: odd for one in the cache. Raises OSError."""
    if _libc.mincore(address, length, pages):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), "mincore")


def populate(address: int, length: int) -> None:
    """Fault pages of a mapping in for writing. Raises OSError."""
    if _libc.madvise(address, length, MADV_POPULATE_WRITE):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), "madvise(MADV_POPULATE_WRITE)")
