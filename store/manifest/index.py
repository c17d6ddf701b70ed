"""The index as a RocketMQ broker has it in memory after loading a store; nothing is written.

Implements: IndexService.load, buildIndex, queryOffset (4.9.7 and 5.3.3)
What those do to files happens here to private copies of their pages, oddities included: a file that is too short counts
with zeros behind its end, and the last record of a file that recovery dispatches again is in it twice.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

from store.index.geometry import geometry_of
from store.index.index_file import DEFAULT_GEOMETRY, Geometry, Header, IndexFile, hash_of
from store.index.query import is_index_name, query_offset
from store.message.properties import keys_of
from store.message.record import TRANSACTION_MASK, Message, SysFlag

LONG_MAX = 2**63 - 1
ASKED_FOR = 32  # how many the reference program asks for


class LoadedIndex:
    """The files in order. New ones are made in memory."""

    def __init__(self, files: list[IndexFile], geometry: Geometry) -> None:
        self.files, self._geometry = files, geometry
        self._names = count()

    @classmethod
    def loaded(cls, directory: Path, *, aborted: bool, index_msg_timestamp_ms: int) -> LoadedIndex:
        """IndexService.load: after an abnormal end without the files that are later than the checkpoint."""
        paths = _as_java_lists(directory)
        geometry = geometry_of(reversed(paths)) or DEFAULT_GEOMETRY
        files = [IndexFile.private(path, geometry) for path in paths]
        kept = [file for file in files if not aborted or file.header.end_timestamp_ms <= index_msg_timestamp_ms]
        return cls(kept, geometry)

    def dispatch(self, message: Message) -> None:
        """Put a message's keys, like IndexService.buildIndex."""
        file = self._last()
        if message.physical_offset < file.header.end_physical_offset:
            return
        if message.sys_flag & TRANSACTION_MASK == SysFlag.TRANSACTION_ROLLBACK:
            return
        unique, parts = keys_of(message.properties)
        for key in [*unique, *parts]:
            key_hash = hash_of(message.topic, key)
            while not file.put(key_hash, message.physical_offset, message.store_timestamp_ms):
                file = self._last()

    def _last(self) -> IndexFile:
        """Return a last file with room, like getAndCreateLastIndexFile."""
        last = self.files[-1] if self.files else None
        if last is not None and not last.is_full:
            return last
        made = IndexFile.fresh(Path(f"made-{next(self._names)}"), self._geometry)
        if last is not None:
            end_ms, end_offset = max(last.header.end_timestamp_ms, 0), max(last.header.end_physical_offset, 0)
            made.write_header(Header(end_ms, end_ms, end_offset, end_offset, 0, 0))
        self.files.append(made)
        return made

    def query(self, topic: str, key: str) -> list[int]:
        """Return what the reference program's query finds."""
        return query_offset(reversed(self.files), topic, key, ASKED_FOR, 0, LONG_MAX)


def _as_java_lists(directory: Path) -> list[Path]:
    """The files by name; loading ends at a directory that is named like a file."""
    try:
        named = sorted((path for path in directory.iterdir() if is_index_name(path.name)), key=lambda path: path.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    stop = next((number for number, path in enumerate(named) if path.is_dir()), len(named))
    return named[:stop]
