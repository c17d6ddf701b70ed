"""Tells whether what a broker writes is still what its paths lead to: files deleted, moved or replaced while it runs.

A mapped file that was deleted takes bytes and fdatasync as before, and nobody can reach them. The open segment is
compared with its name, the store's directories with what they were when the watch began.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.board.failures import FILES_GONE
from store.files.place import Place
from store.files.segment_files import SegmentFiles


class FilesGone(OSError):
    """Raised for a file or directory of the log that its path does not lead to any more.

    Next: put the file back, or restore it from a replica, then start the broker again.
    """

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(FILES_GONE, f"{what} while the broker runs", str(path))


class LogWatch:
    """The watch over one log."""

    def __init__(self, root: Path, files: SegmentFiles) -> None:
        """Note the directories' inodes. Raises OSError."""
        self._files = files
        self._directories = [Place.of(path) for path in (root, files.directory)]

    def require_name(self, fd: int, base: int) -> None:
        """Raise FilesGone if the open segment has no name any more; cheap enough for each flush."""
        if os.fstat(fd).st_nlink == 0:
            raise FilesGone(self._files.path_of(base), "it was deleted")

    def require_places(self, fd: int, base: int) -> None:
        """Raise FilesGone unless the directories, and the open segment's name (fd -1: no segment), lead where they did.

        Raises OSError where that is unknown.
        """
        for place in self._directories:
            if _inode_of(place.path) != (place.device, place.inode):
                raise FilesGone(Path(place.path), "another directory took its place")
        if fd >= 0:
            path, opened = self._files.path_of(base), os.fstat(fd)
            if _inode_of(path) != (opened.st_dev, opened.st_ino):
                raise FilesGone(path, "another file took its place")


def _inode_of(path: Path | str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise FilesGone(Path(path), "it was deleted or moved") from None
    return status.st_dev, status.st_ino
