"""Brings consume queues to disk: the files that changed since they were last there.

Implements: FlushConsumeQueueService's round over the queues (spec: store-formats, section 18)
The dispatcher writes with pwrite, which moves a file's mtime: that is how another process knows what changed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from store import file_io
from store.consume_queue import ENTRY_BYTES, ConsumeQueue, queue_directories
from store.segment import file_name
from store.segment_files import stated_files

PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Totals:
    """What the queues hold of the log below some offset."""

    queues: int = 0  # with entries
    entries: int = 0
    last_physical_offset: int | None = None  # of the last record that has an entry


def totals(root: Path, file_bytes: int, physical_offset: int) -> Totals:
    """Count the entries of records below `physical_offset`; files of another length count as none."""
    queues = entries = 0
    last: int | None = None
    for _topic, _queue_id, path in queue_directories(root):
        queue = ConsumeQueue(path, file_bytes)
        end = queue.end_below(physical_offset)
        queues, entries = queues + (end > 0), entries + end
        entry = queue.last_entry(end) if end else None
        if entry is not None and (last is None or int(entry["physical_offset"]) > last):
            last = int(entry["physical_offset"])
    return Totals(queues, entries, last)


class QueueSync:
    """Which queue files are on disk as they are now."""

    def __init__(self, root: Path, file_bytes: int) -> None:
        self._root, self._file_bytes = root, file_bytes
        self._synced_mtime_ns: dict[Path, int] = {}
        self._synced_end: dict[Path, int] = {}

    def sync(self, least_pages: int) -> int:
        """Sync the queues with at least `least_pages` new pages (0: with anything new); how many files that were.

        Raises OSError: then what was written may be lost, and nothing may be said to be on disk.
        """
        synced = 0
        for _topic, _queue_id, directory in queue_directories(self._root):
            changed = list(self._changed(directory))
            if not changed or (least_pages and not self._has_grown(directory, least_pages)):
                continue
            if any(path not in self._synced_mtime_ns for path, _ in changed):
                for parent in (directory, directory.parent, self._root):
                    file_io.sync_directory(parent)  # a new file's name has to be there, too
            for path, mtime_ns in changed:
                try:
                    fd = file_io.open_file(path, writable=True)
                except FileNotFoundError:
                    continue  # expired, and deleted meanwhile
                try:
                    file_io.sync_data(fd)
                finally:
                    os.close(fd)
                self._synced_mtime_ns[path] = mtime_ns
                synced += 1
        return synced

    def _changed(self, directory: Path) -> list[tuple[Path, int]]:
        times = [(directory / file_name(base), found.st_mtime_ns) for base, found in stated_files(directory)]
        return [(path, mtime_ns) for path, mtime_ns in times if self._synced_mtime_ns.get(path) != mtime_ns]

    def _has_grown(self, directory: Path, least_pages: int) -> bool:
        end = ConsumeQueue(directory, self._file_bytes).max_offset * ENTRY_BYTES
        grown = end // PAGE_BYTES - self._synced_end.get(directory, 0) // PAGE_BYTES
        if grown < least_pages:
            return False
        self._synced_end[directory] = end
        return True
