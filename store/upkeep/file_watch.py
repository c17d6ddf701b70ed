"""Which files a store has, and which came or went since the last look: what the audit tells.

A directory is listed only when its mtime has moved, so a look over many queues is a stat of each and of its topic.
Deletions of our own are told with `forget`, so that what is missing otherwise was removed by somebody else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from store.files.directory import StoreDirectory, directories_in
from store.files.file_times import is_settled, look_ns
from store.files.segment import NAME_DIGITS
from store.index.query import is_index_name

SEGMENT, QUEUE, INDEX = "segment", "queue", "index"
QUEUE_ROOTS = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
UNKNOWN_TIME = -1
Names = tuple[str, ...]


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
        # directory: its mtime, the files in it; texts and no Paths, for there may be very many
        self._seen: dict[str, dict[str, tuple[int, Names]]] = {SEGMENT: {}, QUEUE: {}, INDEX: {}}
        self._folders: dict[str, tuple[int, Names]] = {}  # of queues' roots and topics: mtime, the directories in it

    def counts(self) -> dict[str, int]:
        """How many files of each kind were there at the last look."""
        return {kind: sum(len(names) for _mtime, names in seen.values()) for kind, seen in self._seen.items()}

    def forget(self, path: Path) -> None:
        """The file is about to be deleted by us: its absence is no news."""
        directory = str(path.parent)
        for seen in self._seen.values():
            if directory in seen:
                mtime_ns, names = seen[directory]
                seen[directory] = mtime_ns, tuple(name for name in names if name != path.name)

    def look_at_segments(self) -> list[Change]:
        """What changed in the commit log."""
        return self._look_at(SEGMENT, str(self._directory.commitlog))

    def look(self) -> Iterator[list[Change]]:
        """What changed in the queues and the index, directory by directory: who looks may stop in between."""
        present = set()
        for directory in self._queue_directories():
            present.add(directory)
            yield self._look_at(QUEUE, directory)
        for directory in [known for known in self._seen[QUEUE] if known not in present]:
            self._folders.pop(os.path.dirname(directory), None)
            yield self._look_at(QUEUE, directory)
        yield self._look_at(INDEX, str(self._directory.index))

    def _queue_directories(self) -> Iterator[str]:
        for root in QUEUE_ROOTS:
            for topic in self._folders_in(str(self._directory.root / root)):
                yield from self._folders_in(topic)

    def _folders_in(self, path: str) -> list[str]:
        looked_ns = look_ns()
        try:
            found_ns = os.stat(path).st_mtime_ns
            mtime_ns, names = self._folders.get(path, (UNKNOWN_TIME, ()))
            if found_ns != mtime_ns:
                names = tuple(map(sys.intern, directories_in(Path(path))))
                self._folders[path] = found_ns if is_settled(found_ns, looked_ns) else UNKNOWN_TIME, names
        except FileNotFoundError:
            self._folders.pop(path, None)
            return []
        return [f"{path}/{name}" for name in names]

    def _look_at(self, kind: str, directory: str) -> list[Change]:
        seen = self._seen[kind]
        mtime_ns, known = seen.get(directory, (UNKNOWN_TIME, ()))
        try:
            looked_ns = look_ns()
            found_ns = os.stat(directory).st_mtime_ns
            if found_ns == mtime_ns:
                return []
            is_ours = is_index_name if kind == INDEX else _is_offset
            names = tuple(sys.intern(name) for name in sorted(os.listdir(directory)) if is_ours(name))
            seen[directory] = found_ns if is_settled(found_ns, looked_ns) else UNKNOWN_TIME, names
        except FileNotFoundError:
            names = ()
            seen.pop(directory, None)
        return [] if names == known else _changes(kind, Path(directory), known, names)


def _changes(kind: str, directory: Path, known: Names, names: Names) -> list[Change]:
    came, went = set(names) - set(known), set(known) - set(names)
    changes = [Change(kind, directory / name, False) for name in sorted(went)]
    for before, name in zip([None, *names], names, strict=False):
        if name in came:
            changes.append(Change(kind, directory / name, True, directory / before if before else None))
    return changes


def _is_offset(name: str) -> bool:
    return len(name) == NAME_DIGITS and name.isdecimal()
