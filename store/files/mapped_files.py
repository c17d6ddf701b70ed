"""The only calls of mmap below `store`, and what of a mapped file has blocks or lies in the page cache.

Nothing here knows a format. Callers write `mapped_files.map_file(fd, ...)`, as with `file_io`, for tests.
"""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ipc.descriptors import closing_fd
from store.files import file_io
from store.files.file_io import PAGE_BYTES

if TYPE_CHECKING:  # commands that find no store should not load numpy to say so
    import numpy as np
    import numpy.typing as npt


def map_file(fd: int, size_bytes: int, writable: bool) -> mmap.mmap:
    """A shared mapping of the first `size_bytes`."""
    return mmap.mmap(fd, size_bytes, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)


def map_private(fd: int, size_bytes: int) -> mmap.mmap:
    """Map like `map_file`; writes to the mapping stay private, and never reach the file."""
    return mmap.mmap(fd, size_bytes, access=mmap.ACCESS_COPY)


def map_array(path: Path) -> npt.NDArray[np.uint8]:
    """The bytes of a whole file, read in place; unmapped with the last use of it."""
    import numpy as np

    with closing_fd(file_io.open_file(path, writable=False)) as fd:
        return np.frombuffer(map_file(fd, os.fstat(fd).st_size, writable=False), np.uint8)


def first_hole(fd: int) -> int:
    """Return where the first range without blocks begins. To read one through a mapping is a SIGBUS on a full tmpfs."""
    return os.lseek(fd, 0, os.SEEK_HOLE)


def first_hole_of(path: Path) -> int:
    """Find the first hole like `first_hole`, of a file given by its path."""
    with closing_fd(file_io.open_file(path, writable=False)) as fd:
        return first_hole(fd)


def resident_pages(array: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Return which pages of a mapped file are in the page cache."""
    import numpy as np

    from store.files import libc

    pages = np.zeros(-(-len(array) // PAGE_BYTES), np.uint8)
    if len(pages):
        libc.pages_in_cache(array.ctypes.data, len(array), pages.ctypes.data)
    return (pages & 1).astype(np.bool_)


def populate_write(view: memoryview | npt.NDArray[np.uint8], start: int, length: int) -> bool:
    """Fault the pages of [start, start + length) in for writing, ahead of the one who writes; contents stay.

    False where the kernel or the file system cannot (EINVAL), or memory is short (ENOMEM): then the writer pays for
    its page faults itself. Raises OSError for the rest (EFAULT: a range without blocks and a full disk).
    """
    import numpy as np

    from store.files import libc

    array = np.frombuffer(view, dtype=np.uint8)
    first = start // PAGE_BYTES * PAGE_BYTES
    length = min(start + length, len(array)) - first
    if length <= 0:
        return True
    try:
        libc.populate(array.ctypes.data + first, length)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOMEM):
            return False
        raise
    return True


def clear(path: Path, start: int, end: int) -> None:
    """Zeros in [start, end) of the file, without filling holes."""
    import numpy as np

    with closing_fd(file_io.open_file(path, writable=True)) as fd:
        mapped = np.frombuffer(map_file(fd, end, writable=False), np.uint8)
        for low, high in list(file_io.data_ranges(fd, start, end)):
            if mapped[low:high].any():
                file_io.write_at(fd, bytes(high - low), low)
