"""One round over a store's side files: what goes, what is missing or stale, and building that, oldest segment first.

Two builders never work at once (`side_files.hold`). Beside a running broker a lease keeps retention from the segment
that is read. A round may be killed anywhere: the next one removes what it left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from ipc.clock import wall_ms
from ipc.module_names import DISTRIBUTION, version_here
from spark_bridge.columnar import side_file
from spark_bridge.columnar.parquet_writer import ParquetFile
from spark_bridge.columnar.segment_rows import SegmentRows, Unfit
from spark_bridge.columnar.side_file import DataFile, Manifest, SideFile, State
from spark_bridge.records.in_order import cpus, in_order
from store.columns.window import LogWindow
from store.epochs import INT64_MAX, TEXT_MAX
from store.errors import CorruptRecord, SegmentRemoved
from store.files import file_io
from store.files.directory import store_directory
from store.files.segment import Segment, file_name
from store.files.segment_files import SegmentFiles, named_files, segment_bytes_of
from store.reading import extent
from store.reading.origin import line_of_store
from store.upkeep import leases, side_files


# Builds the side file of one sealed segment: Parquet file first, manifest last, both whole or not there.
#
# It works in small steps, so that its caller can beat a heartbeat, show progress and stop between them.
def build(root: Path | str, files: SegmentFiles, base_offset: int, compat: str) -> Iterator[int]:
    """Build, or build anew, the side file of that segment; yields how many bytes of the segment are done.

    A segment that cannot have one gets a manifest that says why. The caller holds the folder (`side_files.hold`), and
    knows that the segment is sealed. Raises SegmentRemoved, SegmentSizeMismatch, and OSError (ENOSPC): then nothing
    that was not whole is left.
    """
    path = side_files.data_path(root, base_offset)
    with files.open(base_offset) as segment:
        status = os.fstat(segment.fd)
        rows = SegmentRows(LogWindow(str(segment.path), base_offset, segment.array, segment.end_offset))
        data, why_not = None, ""
        writing = ParquetFile(path)
        try:
            for batch in rows.batches():
                writing.add(batch)
                yield rows.done_bytes
            data = writing.finish(path)
            side_files.give_to_owner(root, path)
        except (Unfit, CorruptRecord) as error:
            why_not = _in_one_line(error)
        finally:
            writing.close()
        manifest = _manifest(segment, status, rows, data, why_not, compat)
    side_file.write_manifest(root, base_offset, manifest)
    made = side_files.manifest_path(root, base_offset)
    os.chmod(made, file_io.FILE_MODE)
    side_files.give_to_owner(root, made)
    if data is None:
        file_io.unlink(path)  # of another time
    yield segment.size_bytes


def _manifest(
    segment: Segment, status: os.stat_result, rows: SegmentRows, data: DataFile | None, why_not: str, compat: str
) -> Manifest:
    base, is_whole = segment.base_offset, data is not None
    return Manifest(
        segment=file_name(base),
        segment_bytes=segment.size_bytes,
        inode=status.st_ino & INT64_MAX,
        mtime_ns=max(0, status.st_mtime_ns),
        rows=rows.rows if is_whole else 0,
        not_for_queues=rows.not_for_queues if is_whole else 0,
        first_offset=rows.first_offset if is_whole else base,
        last_offset=rows.last_offset if is_whole else base,
        end_offset=rows.end_offset if is_whole else base,
        topics=rows.topics if is_whole else None,
        samples=rows.samples() if is_whole else (),
        why_not=why_not,
        compat=compat,
        made_by=_program(),
        made_ms=wall_ms(),
        data=data,
    )


def _in_one_line(error: Exception) -> str:
    text = "".join(one if one.isprintable() else "?" for one in str(error))
    return text[:TEXT_MAX]


def _program() -> str:
    return f"{DISTRIBUTION} {version_here('')}".rstrip()


LEASE_MS = 60_000
STEPS_AHEAD = 1 << 20  # they are small, and all of a segment may be made while the one before it is built
TO_BUILD = (State.MISSING, State.STALE, State.DAMAGED)


@dataclass(frozen=True, slots=True)
class SealedSegments:
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


def sealed_segments(root: Path | str) -> SealedSegments:
    """The segments of now that may have side files. Raises NotAStore, and what is wrong with the log's files."""
    directory = store_directory(root)
    if not any(size for _base, size in named_files(directory.commitlog)):
        return SealedSegments(directory.root, SegmentFiles(directory.commitlog, 1), (), is_live=False)
    segment_bytes = segment_bytes_of(directory.commitlog)
    readable = extent.readable_range(directory.root, check_crc=False, beyond_rot=True)
    low, end = readable.min_physical_offset, readable.max_physical_offset
    names = [base for base, size in named_files(directory.commitlog) if size == segment_bytes]
    bases = tuple(base for base in names if low <= base and base + segment_bytes <= end)
    files = SegmentFiles(directory.commitlog, segment_bytes)
    return SealedSegments(directory.root, files, bases, is_live=readable.source == extent.BROKER)


def tidy(store: SealedSegments) -> int:
    """Remove the side files of segments that are gone, and what killed builders left; of how many segments.

    A segment that is in the log again but not sealed (it was cut) keeps them until it is: they are stale then.
    """
    side_files.remove_leftovers(store.root)
    there = {base for base, _size in named_files(store.files.directory)}
    return sum(side_files.remove(store.root, base) for base in side_files.listed(store.root) if base not in there)


def wanting(store: SealedSegments, bases: Collection[int] | None = None) -> list[tuple[int, SideFile]]:
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


def build_these(
    store: SealedSegments, wanted: Sequence[tuple[int, SideFile]], threads: int | None = None
) -> Generator[Step | Built, None, None]:
    """Build them, in small steps, several at once. A segment that retention takes meanwhile is left out.

    Without `threads` there is one for each CPU, and beside a running broker just one, whose roles need the others. The
    caller holds the folder, and closes this before it lets go. Raises OSError, which may pass (ENOSPC); a segment is
    done or not begun then.
    """
    compat = line_of_store(store.root).compat
    if threads is None:
        threads = 1 if store.is_live else cpus()
    jobs = [partial(_build_this, store, base, before, compat) for base, before in wanted]
    return in_order(jobs, min(threads, len(jobs)), STEPS_AHEAD, awaits_end=True)


def _build_this(store: SealedSegments, base: int, before: SideFile, compat: str) -> Iterator[Step | Built]:
    began = time.monotonic()
    try:
        with _Leased(store, base) as lease:
            for done_bytes in build(store.root, store.files, base, compat):
                lease.keep()
                yield Step(base, done_bytes)
        after = store.check(base)
    except SegmentRemoved:
        side_files.remove(store.root, base)
        return
    yield Built(before, base, after, time.monotonic() - began)


def build_all(root: Path | str) -> list[Built]:
    """Bring all side files of a store up to date; what was built. Raises SideFilesBusy, NotAStore, OSError."""
    side_files.make_folder(root)
    fd = side_files.hold(root)
    try:
        store = sealed_segments(root)
        tidy(store)
        with closing(build_these(store, wanting(store))) as building:
            return [one for one in building if isinstance(one, Built)]
    finally:
        os.close(fd)


class _Leased:
    """Retention of a running broker waits for us, as for any reader."""

    def __init__(self, store: SealedSegments, base_offset: int) -> None:
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
