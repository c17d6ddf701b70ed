"""Room on a store's disk that is kept for the small files which a change of role writes: the file `slipstream.reserve`.

It is made while the old role still serves, and removed once that has stopped: so a full disk refuses a promotion before
anything was stopped for it. One that a kill has left is made anew, or removed, by the next change.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from store.files import file_io
from store.names import CONFIG, RESERVE

BYTES_MIN, BYTES_MAX = 1 << 20, 64 << 20


def make(root: Path) -> None:
    """Keep room for all tables once more, and for a little besides, durably. Raises OSError."""
    config, tables = Path(root) / CONFIG, 0
    with suppress(FileNotFoundError), os.scandir(config) as entries:
        tables = sum(entry.stat().st_size for entry in entries if entry.is_file())
    fd = os.open(Path(root) / RESERVE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, file_io.FILE_MODE)
    try:
        file_io.reserve(fd, 0, min(BYTES_MIN + tables, BYTES_MAX))
        file_io.sync_data(fd)
    finally:
        os.close(fd)


def remove(root: Path) -> None:
    """Give the room back."""
    with suppress(FileNotFoundError):
        file_io.unlink(Path(root) / RESERVE)
