"""One sync of a whole file system, where thousands of files would each wait for the disk."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

_libc = ctypes.CDLL(None)


def open_file_system(path: Path) -> int | None:
    """A descriptor for `FileSystemSync`; None where the kernel tells no errors there (before 5.8), or nothing is."""
    try:
        if [int(part) for part in os.uname().release.split("-")[0].split(".")[:2]] < [5, 8]:
            return None
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None


class FileSystemSync:
    """syncfs under way in a thread: names and bytes of every file there are on disk once it `is_done`."""

    def __init__(self, fd: int) -> None:
        self._fd, self.is_done = fd, False
        self._thread = threading.Thread(target=self._run, name="syncfs", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.is_done = _libc.syncfs(self._fd) == 0

    def wait(self, seconds: float) -> bool:
        """Whether it has ended by then."""
        self._thread.join(seconds)
        return not self._thread.is_alive()
