"""Locks on directories themselves: a process that writes there owns them, from whatever root and by whatever path.

The lock file below a root says nothing of a commit log that lies apart, or of a directory that a link or a mount put
there. flock on the directory needs no file in it (RocketMQ refuses a commit log with a file that is no segment), and
forked children hold it, too: a broker that was killed owns its directories until its last process has gone. So a
directory whose owner is a dead process is waited for, for a moment.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterable
from pathlib import Path

from ipc.process import start_time
from store.errors import StoreLocked
from store.files import file_io

WAIT_SECONDS = 60.0  # a killed process that waits for its disk ends when that has answered
POLL_SECONDS = 0.02
UNSUPPORTED = (errno.EBADF, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENOLCK)  # NFS, for one


class DirectoryLocks:
    """Directories that this process owns."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def take(self, directories: Iterable[Path]) -> None:
        """Own those that are there. Raises StoreLocked, and then owns none."""
        for directory in directories:
            try:
                fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                continue
            self._take(directory, fd)

    def take_file(self, path: Path) -> None:
        """Own that file, made where it is missing. Raises StoreLocked, and then owns none."""
        self._take(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, file_io.FILE_MODE))

    def _take(self, path: Path, fd: int) -> None:
        try:
            if not any(os.path.samestat(os.fstat(fd), os.fstat(owned)) for owned in self._fds):
                _lock(path, fd, time.monotonic() + WAIT_SECONDS)
            self._fds.append(fd)
        except BaseException:
            os.close(fd)
            self.release()
            raise

    def release(self) -> None:
        """Give all of them back."""
        while self._fds:
            os.close(self._fds.pop())


def _lock(directory: Path, fd: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            owner = _owner(fd)
            if time.monotonic() > deadline or (owner is not None and start_time(owner) is not None):
                raise StoreLocked(str(directory), owner) from error
        except OSError as error:
            if error.errno in UNSUPPORTED:
                return
            raise
        time.sleep(POLL_SECONDS)


def _owner(fd: int) -> int | None:
    """The process that took the lock, by /proc/locks; None where that does not tell (another PID namespace)."""
    status = os.fstat(fd)
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == wanted and words[4].isdecimal():
            return int(words[4])
    return None
