"""Small files by which processes tell of themselves: whether their writer still holds them, and what they say.

Whatever lies under such a name may be a stranger's: a pipe that never ends, a link, a directory. Nothing here waits.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

from ipc.descriptors import closing_fd
from store.files.file_io import FLOCK


def is_held(fd: int) -> bool:
    """Whether somebody holds the file (`file_io.replace_held`), whatever PID namespace he is in."""
    request = FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 1, 0)
    return bool(FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, request))[0] != fcntl.F_UNLCK)


def open_small(path: Path) -> int:
    """A descriptor for reading, of whatever stands there. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def open_plain(path: Path) -> int:
    """Open like `open_small`, but only a plain file, not a link. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return fd


def read_small(path: Path, bytes_max: int) -> bytes:
    """The first bytes of a plain file. Raises OSError, also for what is no file."""
    with closing_fd(open_plain(path)) as fd:
        return os.pread(fd, bytes_max, 0)
