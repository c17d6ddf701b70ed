"""Tells one content of a file from another, without reading it: files here are replaced, not written over."""

from __future__ import annotations

import os
from pathlib import Path

FileState = tuple[int, int, int]  # when, inode and bytes: an inode may come again within a tick


def state_in(status: os.stat_result) -> FileState:
    """Return the state of a file, from its stat."""
    return status.st_mtime_ns, status.st_ino, status.st_size


def state_of(path: Path) -> FileState | None:
    """Return None where there is no such file, or none that may be looked at."""
    try:
        return state_in(path.stat())
    except OSError:
        return None
