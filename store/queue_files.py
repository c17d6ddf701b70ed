"""Queue files as retention sees them: how far back in the log the last entry of each points.

Implements: MappedFileQueue.deleteExpiredFileByOffset, its reading part (spec: store-formats, sections 10, 22)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

from store import file_io
from store.consume_queue import ENTRY_BYTES, queue_directories
from store.segment import file_name
from store.segment_files import named_files

BATCH_ENTRY_BYTES = 46
PHYSICAL_OFFSET = Struct(">q")  # the first field of an entry in either kind of queue


def queues(root: Path) -> Iterator[tuple[Path, int]]:
    """(directory, bytes of an entry) of every queue of a store."""
    for name, entry_bytes in (("consumequeue", ENTRY_BYTES), ("batchconsumequeue", BATCH_ENTRY_BYTES)):
        for _topic, _queue_id, directory in queue_directories(root / name):
            yield directory, entry_bytes


def last_offsets(directory: Path, entry_bytes: int) -> Iterator[tuple[Path, int]]:
    """(file, physical offset in its last entry) of every file but the newest, oldest first.

    Ends before a file too short for an entry.
    """
    for base, size in named_files(directory)[:-1]:
        if size < entry_bytes:
            return
        path = directory / file_name(base)
        fd = file_io.open_file(path, writable=False)
        try:
            found = os.pread(fd, PHYSICAL_OFFSET.size, size - entry_bytes)
        finally:
            os.close(fd)
        yield path, PHYSICAL_OFFSET.unpack(found)[0]
