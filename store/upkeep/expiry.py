"""Queue and index files as retention sees them: how far back in the log the last entry of each points.

Implements: MappedFileQueue.deleteExpiredFileByOffset, IndexService.deleteExpiredFile, their reading parts
spec: store-formats, sections 10, 13, 22
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import numpy as np

from ipc.descriptors import closing_fd
from store.errors import IndexFileDamaged
from store.files import file_io
from store.files.segment import file_name
from store.files.segment_files import named_files
from store.index.index_file import HEADER_BYTES, HEADER_DTYPE
from store.index.query import index_files
from store.names import BATCH_QUEUES, CONSUME_QUEUES, QUEUE_EXTENSIONS
from store.queues.batch_consume_queue import UNIT_BYTES
from store.queues.consume_queue import ENTRY_BYTES, ConsumeQueue, queue_directories
from store.queues.extension import ADDRESS_ZERO, is_address

PHYSICAL_OFFSET = Struct(">q")  # the first field of an entry in either kind of queue


def queues(root: Path) -> Iterator[tuple[Path, int]]:
    """(directory, bytes of an entry) of every queue of a store."""
    for name, entry_bytes in ((CONSUME_QUEUES, ENTRY_BYTES), (BATCH_QUEUES, UNIT_BYTES)):
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
        raw = _bytes_of(path, size - entry_bytes, PHYSICAL_OFFSET.size)
        yield path, PHYSICAL_OFFSET.unpack(raw)[0]


def expired_ext_files(directory: Path, physical_offset: int) -> list[Path]:
    """The extension's files that end before the unit of the queue's first entry at or above that offset.

    Implements: ConsumeQueue.correctMinOffset, ConsumeQueueExt.truncateByMinAddress
    """
    ext = directory.parents[2] / QUEUE_EXTENSIONS / directory.parent.name / directory.name
    files, queue = named_files(ext), named_files(directory)
    if not files or not queue or queue[0][1] < ENTRY_BYTES:
        return []
    entries = ConsumeQueue(directory, queue[0][1]).map_file(queue[0][0])
    living = np.flatnonzero((entries["physical_offset"] >= physical_offset) & (entries["size"] > 0))
    address = int(entries[living[0]]["tags_code"]) if len(living) else 0
    if not is_address(address):
        return []
    return [ext / file_name(base) for base, size in files if base + size < address - ADDRESS_ZERO]


def index_ends(directory: Path) -> Iterator[tuple[Path, int]]:
    """(file, physical offset of its last record) of every index file but the newest, oldest first.

    Only headers are read, so any maxHashSlotNum and maxIndexNum will do. Raises IndexFileDamaged without one.
    """
    for path in index_files(directory)[:-1]:
        header = _bytes_of(path, 0, HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            raise IndexFileDamaged(str(path), len(header), "it ends within its header")
        yield path, int(np.frombuffer(header, HEADER_DTYPE)[0]["end_physical_offset"])


def _bytes_of(path: Path, position: int, count: int) -> bytes:
    with closing_fd(file_io.open_file(path, writable=False)) as fd:
        return os.pread(fd, count, position)
