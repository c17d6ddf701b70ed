"""Whether a store's disk has room for the small files that a change of role writes: tried, with real blocks.

The free space that a file system tells is no answer: quotas and blocks reserved for root are in it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from store.files import file_io
from store.names import CONFIG, RESERVE

BYTES_MIN, BYTES_MAX = 1 << 20, 64 << 20


def require(root: Path) -> None:
    """Take the room of all tables once more and a little besides, durably, and give it back. Raises OSError."""
    path, tables = Path(root) / RESERVE, 0
    with suppress(FileNotFoundError), os.scandir(Path(root) / CONFIG) as entries:
        tables = sum(entry.stat().st_size for entry in entries if entry.is_file())
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, file_io.FILE_MODE)
    try:
        file_io.reserve(fd, 0, min(BYTES_MIN + tables, BYTES_MAX))
        file_io.sync_data(fd)
    finally:
        os.close(fd)
        file_io.unlink(path)
