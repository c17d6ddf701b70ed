"""One plain consume queue as a service follows it: the entries from an offset on, as far as the log is dispatched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ipc.arrays import Words
from store.files import file_io
from store.files.segment import file_name
from store.queues.consume_queue import CQ_DTYPE, ENTRY_BYTES, PREFILL_SIZE, ConsumeQueue


class QueueEntries(NamedTuple):
    """Columns of neighbouring entries. `physical_offsets` are -1 where an entry points nowhere."""

    physical_offsets: Words
    sizes: Words
    tags_codes: Words

    def __len__(self) -> int:
        return len(self.sizes)


NONE = QueueEntries(*(np.empty(0, np.int64) for _ in range(3)))


class FollowedQueue:
    """The queue in a directory, which the dispatcher writes."""

    def __init__(self, directory: Path, file_bytes: int) -> None:
        self._directory, self._file_bytes = directory, file_bytes
        self._base, self._fd = -1, -1

    def read(self, offset: int, count_max: int, below: int) -> QueueEntries | None:
        """Return up to `count_max` entries from `offset` on, of one file, below the log offset `below`.

        None where there is no such file.
        """
        at = offset * ENTRY_BYTES
        base = at - at % self._file_bytes
        if base != self._base and not self._open(base):
            return None
        length = min(count_max * ENTRY_BYTES, base + self._file_bytes - at)
        entries = np.frombuffer(os.pread(self._fd, length, at - base), CQ_DTYPE)
        sizes, places = entries["size"].astype(np.int64), entries["physical_offset"].astype(np.int64)
        is_there = (sizes > 0) & (places < below)
        count = len(entries) if is_there.all() else int(is_there.argmin())
        places[sizes == PREFILL_SIZE] = -1
        return QueueEntries(places[:count], sizes[:count], entries["tags_code"][:count].astype(np.int64))

    def _open(self, base: int) -> bool:
        self.close()
        try:
            self._fd = file_io.open_file(self._directory / file_name(base), writable=False)
        except FileNotFoundError:
            return False
        self._base = base
        return True

    def bounds(self, below: int) -> tuple[int, int] | None:
        """(first offset, end) of what is dispatched below that log offset; None without a file."""
        queue = ConsumeQueue(self._directory, self._file_bytes)
        try:
            if not queue.bases():
                return None
            return queue.min_offset, queue.end_below(below)
        except FileNotFoundError:  # expired meanwhile
            return None

    def close(self) -> None:
        """Close the queue file that is open."""
        if self._fd >= 0:
            os.close(self._fd)
        self._base, self._fd = -1, -1
