"""The audit: a JSON line for every file of the store that came, was sealed, or went, with the reason.

`slipstream.audit.jsonl` in the store's root; at `AUDIT_BYTES_MAX` it becomes `slipstream.audit.jsonl.1`, and that one
goes. One process writes it, the housekeeper. A deletion has its line before it is done, so none is without one.
Fields: at (local time), at_ms, event (start, create, seal, delete, vanish, stop), kind (segment, queue, index), path
(below the root where it can be), reason, and what else is known.

`FileWatch` says which files came or went since its last look. A directory is listed only when its mtime has moved, so a
look over many queues is a stat of each and of its topic. The broker's own deletions are passed to `forget`, so that
any other missing file was removed by somebody else.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from store.files import file_io
from store.files.directory import StoreDirectory, directories_in
from store.files.file_times import is_settled, look_ns
from store.files.segment import NAME_DIGITS
from store.index.query import is_index_name
from store.names import AUDIT

log = logging.getLogger("slipstream.audit")

AUDIT_BYTES_MAX = 4 << 20
LINES_LOGGED = 20  # of those that were to be written at once
SEGMENT, QUEUE, INDEX = "segment", "queue", "index"
UNKNOWN_TIME = -1
Names = tuple[str, ...]


class Audit:
    """The audit of one store."""

    def __init__(self, root: Path, bytes_max: int = AUDIT_BYTES_MAX) -> None:
        self._root, self.path, self._bytes_max = root, root / AUDIT, bytes_max

    def write(self, now_ms: int, event: str, kind: str, path: Path | None, reason: str, **facts: object) -> None:
        """Add a line. A disk that does not take it gets it in the broker's log instead."""
        self.write_all(now_ms, [(event, kind, path, reason)], **facts)

    def write_all(self, now_ms: int, events: list[tuple[str, str, Path | None, str]], **facts: object) -> None:
        """A line for each (event, kind, path, reason), with one write: there may be thousands."""
        at = datetime.fromtimestamp(now_ms / 1000).astimezone().isoformat(timespec="milliseconds")
        lines = []
        for event, kind, path, reason in events:
            fields = {"at": at, "at_ms": now_ms, "event": event, "kind": kind, "path": self._name(path)}
            lines.append(json.dumps({**fields, "reason": reason, **facts}))
        if not lines:
            return
        text = "\n".join(lines)
        try:
            self._rotate(len(text))
            file_io.append_to(self.path, text.encode("ascii") + b"\n")
        except OSError as error:
            for line in lines[:LINES_LOGGED]:
                log.warning("%s: %s; the line is: %s", self.path, error.strerror, line)
            if len(lines) > LINES_LOGGED:
                log.warning("%s: and %d more lines", self.path, len(lines) - LINES_LOGGED)

    def _name(self, path: Path | None) -> str | None:
        if path is None:
            return None
        return str(path.relative_to(self._root)) if path.is_relative_to(self._root) else str(path)

    def _rotate(self, more: int) -> None:
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            return
        if size and size + more > self._bytes_max:
            file_io.rename(self.path, self.path.with_name(self.path.name + ".1"))


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
        """Return how many files of each kind were there at the last look."""
        return {kind: sum(len(names) for _mtime, names in seen.values()) for kind, seen in self._seen.items()}

    def forget(self, path: Path) -> None:
        """The file is about to be deleted by us: its absence is no news."""
        directory = str(path.parent)
        for seen in self._seen.values():
            if directory in seen:
                mtime_ns, names = seen[directory]
                seen[directory] = mtime_ns, tuple(name for name in names if name != path.name)

    def look_at_segments(self) -> list[Change]:
        """Return what changed in the commit log."""
        return self._look_at(SEGMENT, str(self._directory.commitlog))

    def look(self) -> Iterator[list[Change]]:
        """Yield what changed in the queues and the index, directory by directory: who looks may stop in between."""
        present = set()
        for directory in self._queue_directories():
            present.add(directory)
            yield self._look_at(QUEUE, directory)
        for directory in [known for known in self._seen[QUEUE] if known not in present]:
            self._folders.pop(os.path.dirname(directory), None)
            yield self._look_at(QUEUE, directory)
        yield self._look_at(INDEX, str(self._directory.index))

    def _queue_directories(self) -> Iterator[str]:
        for root in self._directory.queue_directories():
            for topic in self._folders_in(str(root)):
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
