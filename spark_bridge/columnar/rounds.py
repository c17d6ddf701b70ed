"""One round over a store's side files: what goes, what is missing or stale, and building that, oldest segment first.

Two builders never work at once (`side_files.hold`). Beside a running broker a lease keeps retention from the segment
that is read. A round may be killed anywhere: the next one removes what it left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from spark_bridge.columnar import side_file
from spark_bridge.columnar.builder import build
from spark_bridge.columnar.side_file import SideFile, State
from store.errors import SegmentRemoved
from store.files.directory import store_directory
from store.files.segment_files import SegmentFiles, named_files, segment_bytes_of
from store.reading import extent
from store.reading.origin import line_of_store
from store.upkeep import leases, side_files

LEASE_MS = 60_000
TO_BUILD = (State.MISSING, State.STALE, State.DAMAGED)


@dataclass(frozen=True, slots=True)
class Sealed:
    """The segments of a store that no one writes any more, whole and in its log."""

    root: Path
    files: SegmentFiles
    bases: tuple[int, ...]
    is_live: bool

    def check(self, base_offset: int) -> SideFile:
        """Whether that segment's side file may be believed. Raises SegmentRemoved, OSError."""
        return side_file.check(self.root, self.files.directory, base_offset, self.files.segment_bytes)


@dataclass(frozen=True, slots=True)
class Step:
    """The progress of one segment that is being built."""

    base_offset: int
    done_bytes: int


@dataclass(frozen=True, slots=True)
class Built:
    """One segment that was built: what its side file was before, what it is now, and what that took."""

    before: SideFile
    base_offset: int
    after: SideFile
    seconds: float


def sealed(root: Path | str) -> Sealed:
    """The segments of now that may have side files. Raises NotAStore, and what is wrong with the log's files."""
    directory = store_directory(root)
    if not any(size for _base, size in named_files(directory.commitlog)):
        return Sealed(directory.root, SegmentFiles(directory.commitlog, 1), (), is_live=False)
    segment_bytes = segment_bytes_of(directory.commitlog)
    readable = extent.readable_range(directory.root, check_crc=False, beyond_rot=True)
    low, end = readable.min_physical_offset, readable.max_physical_offset
    names = [base for base, size in named_files(directory.commitlog) if size == segment_bytes]
    bases = tuple(base for base in names if low <= base and base + segment_bytes <= end)
    files = SegmentFiles(directory.commitlog, segment_bytes)
    return Sealed(directory.root, files, bases, is_live=readable.source == extent.BROKER)


def tidy(store: Sealed) -> int:
    """Remove the side files of segments that are gone, and what killed builders left; of how many segments.

    A segment that is in the log again but not sealed (it was cut) keeps them until it is: they are stale then.
    """
    side_files.remove_leftovers(store.root)
    there = {base for base, _size in named_files(store.files.directory)}
    return sum(side_files.remove(store.root, base) for base in side_files.listed(store.root) if base not in there)


def wanting(store: Sealed, bases: Collection[int] | None = None) -> list[tuple[int, SideFile]]:
    """The segments, of all or of these, whose side file has to be built. Raises OSError."""
    checked = []
    for base in store.bases:
        if bases is not None and base not in bases:
            continue
        try:
            one = store.check(base)
        except SegmentRemoved:
            continue
        if one.state in TO_BUILD:
            checked.append((base, one))
    return checked


def build_these(store: Sealed, wanted: Sequence[tuple[int, SideFile]]) -> Iterator[Step | Built]:
    """Build them one after the other, in small steps. A segment that retention takes meanwhile is left out.

    The caller holds the folder. Raises OSError, which may pass (ENOSPC); a segment is done or not begun then.
    """
    compat = line_of_store(store.root).compat
    for base, before in wanted:
        began = time.monotonic()
        try:
            with _Leased(store, base) as lease:
                for done_bytes in build(store.root, store.files, base, compat):
                    lease.keep()
                    yield Step(base, done_bytes)
            after = store.check(base)
        except SegmentRemoved:
            side_files.remove(store.root, base)
            continue
        yield Built(before, base, after, time.monotonic() - began)


def build_all(root: Path | str) -> list[Built]:
    """Bring all side files of a store up to date; what was built. Raises SideFilesBusy, NotAStore, OSError."""
    side_files.make_folder(root)
    fd = side_files.hold(root)
    try:
        store = sealed(root)
        tidy(store)
        return [one for one in build_these(store, wanting(store)) if isinstance(one, Built)]
    finally:
        os.close(fd)


class _Leased:
    """Retention of a running broker waits for us, as for any reader."""

    def __init__(self, store: Sealed, base_offset: int) -> None:
        self._lease = leases.acquire(store.root, base_offset, LEASE_MS) if store.is_live else None

    def keep(self) -> None:
        """Hold on, however long it takes."""
        if self._lease is not None:
            self._lease.keep()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._lease is not None:
            self._lease.release()
