"""Where a group begins that is new in a queue: at 0, if the queue's first message is there still, and in memory.

Implements: ConsumerManageProcessor.queryConsumerOffset; DefaultMessageStore.checkInDiskByConsumeOffset,
    checkInMemByConsumeOffset
It reads files: any thread may ask, no loop does.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.remoting.desks.store_view import StoreView
from store.compat import Line
from store.files import file_io


def begins_at_zero(store: StoreView, topic: str, queue_id: int, memory_bytes: int, line: Line) -> bool:
    """4.9: unless the first message is further back than so much memory; 5.x: if the page cache has it.

    Of an empty queue 5.x says no, and its clients skip what is sent before they have asked for its end: DECISIONS 43.
    """
    view = store.queues.view(topic, queue_id)
    if view.min_offset > 0:
        return False
    first = view.entry(0)
    if first is None:
        return True
    if line.groups.zero_is_cached:
        return _is_in_memory(store, first.physical_offset, first.size)
    return store.max_physical_offset - first.physical_offset <= memory_bytes


def _is_in_memory(store: StoreView, physical_offset: int, size: int) -> bool:
    base = store.files.base_of(physical_offset)
    try:
        return _is_cached(store.files.path_of(base), physical_offset - base, size)
    except OSError:
        return False


def _is_cached(path: Path, at: int, size: int) -> bool:
    """Whether that part of a file can be read without its disk."""
    fd = file_io.open_file(path, writable=False)
    try:
        return os.preadv(fd, [bytearray(size)], at, os.RWF_NOWAIT) == size
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
