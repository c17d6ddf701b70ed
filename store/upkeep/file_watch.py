"""Which files a store has, and which came or went since the last look: what the audit tells.

A directory is listed only when its mtime has moved, so a look over many queues is a stat each. Deletions of our own are
told with `forget`, so that what is missing otherwise was removed by somebody else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from store.files.directory import StoreDirectory, directories_in
from store.files.file_times import is_settled, look_ns
from store.files.segment import NAME_DIGITS
from store.index.query import is_index_name

SEGMENT, QUEUE, INDEX = "segment", "queue", "index"
QUEUE_ROOTS = ("consumequeue", "batchconsumequeue", "consumequeue_ext")


class Change(NamedTuple):
    """A file that came (`came`) or went; `follows` is the file before it in its directory, which is sealed by it."""

    kind: str
    path: Path
    came: bool
    follows: Path | None = None


class FileWatch:
    """The files of one store as they were last seen."""

    def __init__(self, directory: StoreDirectory) -> None:
        self._directory = directory
        self._seen: dict[Path, tuple[int, list[str]]] = {}  # directory: its mtime, the files in it

    def counts(self) -> dict[str, int]:
        """How many files of each kind were there at the last look."""
        found = {SEGMENT: 0, QUEUE: 0, INDEX: 0}
        for directory, (_mtime, names) in self._seen.items():
            found[self._kind_of(directory)] += len(names)
        return found

    def forget(self, path: Path) -> None:
        """The file is about to be deleted by us: its absence is no news."""
        _mtime, names = self._seen.get(path.parent, (0, []))
        if path.name in names:
            names.remove(path.name)

    def look_at_segments(self) -> list[Change]:
        """What changed in the commit log."""
        return self._look_at(self._directory.commitlog)

    def look(self) -> list[Change]:
        """What changed in the queues and the index."""
        changes = []
        for directory in (*self._queue_directories(), self._directory.index):
            changes += self._look_at(directory)
        return changes

    def _queue_directories(self) -> Iterator[Path]:
        present = set()
        for root in QUEUE_ROOTS:
            for topic in _paths_in(self._directory.root / root):
                for queue in _paths_in(topic):
                    present.add(queue)
                    yield queue
        yield from (path for path in list(self._seen) if self._kind_of(path) == QUEUE and path not in present)

    def _kind_of(self, directory: Path) -> str:
        return {self._directory.commitlog: SEGMENT, self._directory.index: INDEX}.get(directory, QUEUE)

    def _look_at(self, directory: Path) -> list[Change]:
        mtime_ns, known = self._seen.get(directory, (-1, []))
        kind = self._kind_of(directory)
        is_ours = is_index_name if kind == INDEX else _is_offset
        try:
            looked_ns = look_ns()
            found_ns = os.stat(directory).st_mtime_ns
            if found_ns == mtime_ns:
                return []
            names = sorted(name for name in os.listdir(directory) if is_ours(name))
            self._seen[directory] = found_ns if is_settled(found_ns, looked_ns) else -1, names
        except FileNotFoundError:
            names = []
            self._seen.pop(directory, None)
        came, went = set(names) - set(known), set(known) - set(names)
        changes = [Change(kind, directory / name, False) for name in sorted(went)]
        for before, name in zip([None, *names], names, strict=False):
            if name in came:
                changes.append(Change(kind, directory / name, True, directory / before if before else None))
        return changes


def _paths_in(path: Path) -> list[Path]:
    try:
        return [path / name for name in directories_in(path)]
    except FileNotFoundError:
        return []


def _is_offset(name: str) -> bool:
    return len(name) == NAME_DIGITS and name.isdecimal()
