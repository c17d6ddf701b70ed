"""Brings consume queues to disk: the files that changed since they were last there.

Implements: FlushConsumeQueueService's round over the queues (spec: store-formats, section 18)
The dispatcher writes with pwrite, which moves a file's mtime: that is how another process knows what changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from store import file_io
from store.batch_consume_queue import DIRECTORY as BATCH_DIRECTORY
from store.batch_consume_queue import BatchConsumeQueue
from store.consume_queue import ConsumeQueue, queue_directories
from store.queue_ext import DIRECTORY as EXT_DIRECTORY
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
    for queue in _every(root, file_bytes):
        end = queue.end_below(physical_offset)
        queues, entries = queues + (end > 0), entries + end
        entry = queue.last_entry(end) if end else None
        if entry is not None and (last is None or int(entry["physical_offset"]) > last):
            last = int(entry["physical_offset"])
    return Totals(queues, entries, last)


def _every(root: Path, file_bytes: int) -> Iterator[ConsumeQueue]:
    """The plain queues in `root` and the batch queues beside it."""
    for _topic, _queue_id, path in queue_directories(root):
        yield ConsumeQueue(path, file_bytes)
    for _topic, _queue_id, path in queue_directories(root.parent / BATCH_DIRECTORY):
        yield BatchConsumeQueue.open(path)


class QueueSync:
    """Which queue files are on disk as they are now."""

    def __init__(self, root: Path, file_bytes: int) -> None:
        self._root, self._file_bytes = root, file_bytes
        self._synced_mtime_ns: dict[Path, int] = {}
        self._synced_end: dict[Path, int] = {}

    def sync(self, least_pages: int, between: Callable[[], object] = lambda: None) -> int:
        """Sync the queues with at least `least_pages` new pages (0: with anything new); how many files that were.

        `between` is called before each of them: who has more urgent work need not wait for all.
        Raises OSError: then what was written may be lost, and nothing may be said to be on disk.
        """
        synced = 0
        for queue in _every(self._root, self._file_bytes):
            changed = self._changed(queue.directory) + self._changed(self._ext_of(queue.directory))
            if not changed or (least_pages and not self._has_grown(queue, least_pages)):
                continue
            for directory in {path.parent for path, _ in changed if path not in self._synced_mtime_ns}:
                for parent in (directory, *directory.parents[:3]):
                    file_io.sync_directory(parent)  # a new file's name has to be there, too
            for path, mtime_ns in changed:
                between()
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

    def _ext_of(self, directory: Path) -> Path:
        """Where the extension of a queue is, if it has one."""
        return self._root.parent / EXT_DIRECTORY / directory.parent.name / directory.name

    def _has_grown(self, queue: ConsumeQueue, least_pages: int) -> bool:
        end = queue.max_offset * queue.dtype.itemsize
        grown = end // PAGE_BYTES - self._synced_end.get(queue.directory, 0) // PAGE_BYTES
        if grown < least_pages:
            return False
        self._synced_end[queue.directory] = end
        return True
