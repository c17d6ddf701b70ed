"""Tells whether what a broker writes is still what its paths lead to: files deleted, moved or replaced while it runs.

A mapped file that was deleted takes bytes and fdatasync as before, and nobody can reach them. The open segment is
compared with its name and with the file that bytes go into, the store's directories with what they were when the watch
began. A file system that has become read-only keeps nothing either.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from engine.shared_memory import written_file
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.failures import FILES_GONE
from store.files.place import Place
from store.files.segment_files import SegmentFiles


class FilesGone(OSError):
    """Raised for a file or directory of the log that was deleted, moved or replaced.

    Next: put the file back, or restore it from a replica, then start the broker again.
    """

    def __init__(self, path: Path | str, what: str) -> None:
        super().__init__(FILES_GONE, f"{what} while the broker runs", str(path))


class LogWatch:
    """The watch over one log."""

    def __init__(self, root: Path, files: SegmentFiles, counters: BrokerCounters) -> None:
        """Raises OSError."""
        self._files, self._counters = files, counters
        self._directories = [Place.of(path) for path in (root, files.directory)]
        self._base, self._path = -1, ""  # of the segment that was looked at last: to make its name takes longer

    def require_name(self, fd: int, base: int) -> None:
        """Raise FilesGone if the open segment has no name any more, or is not the one that bytes go into; cheap enough
        for each flush."""
        status = os.fstat(fd)
        if status.st_nlink == 0:
            raise FilesGone(self._files.path_of(base), "it was deleted")
        if written_file.is_another(self._counters, base, status.st_ino):
            raise FilesGone(self._files.path_of(base), "another file took its place")

    def require_places(self, fd: int, base: int) -> None:
        """Raise FilesGone unless the directories, and the open segment's name (fd -1: no segment), lead where they did.

        Raises OSError if the check fails, or if the file system has become read-only.
        """
        for place in self._directories:
            if _inode_of(place.path) != (place.device, place.inode):
                raise FilesGone(place.path, "another directory took its place")
        if fd >= 0:
            if base != self._base:
                self._base, self._path = base, str(self._files.path_of(base))
            opened = os.fstat(fd)
            if _inode_of(self._path) != (opened.st_dev, opened.st_ino):
                raise FilesGone(self._path, "another file took its place")
            self.require_name(fd, base)
        if os.statvfs(self._files.directory).f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self._files.directory))


def _inode_of(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise FilesGone(path, "it was deleted or moved") from None
    return status.st_dev, status.st_ino
