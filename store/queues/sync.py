"""Brings consume queues to disk: the files that changed since they were last there.

Implements: FlushConsumeQueueService's round over the queues (spec: store-formats, section 18)
The dispatcher writes with pwrite, which moves a file's mtime: that is how another process knows what changed. A time so
young that the next write may not move it says nothing: such a file is synced again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from store.files import file_io
from store.files.file_system_sync import FileSystemSync, open_file_system
from store.files.file_times import is_settled, look_ns
from store.files.segment import file_name
from store.files.segment_files import named_files, stated_files
from store.names import BATCH_QUEUES, QUEUE_EXTENSIONS
from store.queues.batch_consume_queue import BatchConsumeQueue
from store.queues.consume_queue import ConsumeQueue, file_bytes_of, queue_directories

PAGE_BYTES = 4096
MANY_FILES = 512  # from so many on the file system is synced as a whole
WAIT_SECONDS = 0.005
NO_TIME = -1  # of a file that was synced, but may have changed since without a sign


class Totals(NamedTuple):
    """The totals of what the queues hold of the log below some offset."""

    queues: int = 0  # with entries
    entries: int = 0
    last_physical_offset: int | None = None  # of the last record that has an entry


def totals(root: Path, file_bytes: int, physical_offset: int, between: Callable[[], object] = lambda: None) -> Totals:
    """Count the entries of records below `physical_offset`; files of another length count as none.

    `between` is called before each queue.
    """
    queues = entries = 0
    last: int | None = None
    for queue in every_queue(root, file_bytes):
        between()
        end, entry = queue.end_and_last(physical_offset)
        queues, entries = queues + (end > 0), entries + end
        if entry is not None and (last is None or int(entry["physical_offset"]) > last):
            last = int(entry["physical_offset"])
    return Totals(queues, entries, last)


def queue_file_bytes(root: Path) -> int:
    """The length of the queue files that are there, most of which agree; 0 without any."""
    sizes = [size for _, _, path in queue_directories(root) for _, size in named_files(path) if size]
    return file_bytes_of(max(set(sizes), key=sizes.count)) if sizes else 0


def every_queue(root: Path, file_bytes: int) -> Iterator[ConsumeQueue]:
    """The plain queues in `root` and the batch queues beside it."""
    for _topic, _queue_id, path in queue_directories(root):
        yield ConsumeQueue(path, file_bytes)
    for _topic, _queue_id, path in queue_directories(root.parent / BATCH_QUEUES):
        yield BatchConsumeQueue.open(path)


class QueueSync:
    """Queue files that have changed since they were last on disk."""

    def __init__(self, root: Path, file_bytes: int) -> None:
        self._root, self._file_bytes = root, file_bytes
        self._synced_mtime_ns: dict[Path, int] = {}
        self._synced_end: dict[Path, int] = {}
        self._file_system = open_file_system(root)

    def sync(self, least_pages: int, between: Callable[[], object] = lambda: None) -> int:
        """Sync the queues with at least `least_pages` new pages (0: with anything new); how many files that were.

        `between` is called before each queue and each file: who has more urgent work need not wait for all.
        Raises OSError: then what was written may be lost, and nothing may be said to be on disk.
        """
        changed = self._all_changed(least_pages, between)
        if len(changed) >= MANY_FILES and self._sync_all(between):
            self._synced_mtime_ns.update(changed)
            return len(changed)
        for directory in self._new_directories(changed):
            between()
            file_io.sync_directory(directory)  # a new file's name has to be there, too
        synced = 0
        for path, mtime_ns in changed:
            between()
            try:
                file_io.sync_data_of(path)
            except FileNotFoundError:
                continue  # expired, and deleted meanwhile
            self._synced_mtime_ns[path] = mtime_ns
            synced += 1
        return synced

    def _sync_all(self, between: Callable[[], object]) -> bool:
        """Sync the whole file system in one wait, not thousands; False when that cannot vouch for the queues' files.

        Held open from the beginning, the descriptor reports every error since then. It does not say which file had it:
        only syncing them one by one does.
        """
        if self._file_system is None:
            return False
        syncing = FileSystemSync(self._file_system)
        while not syncing.wait(WAIT_SECONDS):
            between()
        return syncing.is_done

    def _all_changed(self, least_pages: int, between: Callable[[], object]) -> list[tuple[Path, int]]:
        files, has_ext = [], (self._root.parent / QUEUE_EXTENSIONS).is_dir()
        for queue in every_queue(self._root, self._file_bytes):
            between()
            changed = self._changed(queue.directory)
            if has_ext:
                changed += self._changed(self._ext_of(queue.directory))
            if changed and (not least_pages or self._has_grown(queue, least_pages)):
                files += changed
        return files

    def _new_directories(self, changed: list[tuple[Path, int]]) -> list[Path]:
        """Return where names are new: each queue's, topic's and kind's directory, once, the innermost first."""
        holding = {path.parent for path, _ in changed if path not in self._synced_mtime_ns}
        candidates = {above for directory in holding for above in (directory, *directory.parents[:3])}
        return sorted(candidates, key=lambda directory: len(directory.parts), reverse=True)

    def close(self) -> None:
        """Close the descriptor of the file system."""
        fd, self._file_system = self._file_system, None
        if fd is not None:
            os.close(fd)

    def _changed(self, directory: Path) -> list[tuple[Path, int]]:
        """The files that are not known to be on disk, and the times by which their next change is known."""
        looked_ns, files = look_ns(), []
        for base, status in stated_files(directory):
            path, mtime_ns = directory / file_name(base), status.st_mtime_ns
            if self._synced_mtime_ns.get(path) != mtime_ns:
                files.append((path, mtime_ns if is_settled(mtime_ns, looked_ns) else NO_TIME))
        return files

    def _ext_of(self, directory: Path) -> Path:
        """Return where the extension of a queue is, if it has one."""
        return self._root.parent / QUEUE_EXTENSIONS / directory.parent.name / directory.name

    def _has_grown(self, queue: ConsumeQueue, least_pages: int) -> bool:
        end = queue.max_offset * queue.dtype.itemsize
        grown = end // PAGE_BYTES - self._synced_end.get(queue.directory, 0) // PAGE_BYTES
        if grown < least_pages:
            return False
        self._synced_end[queue.directory] = end
        return True
