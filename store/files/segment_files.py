"""The segments of one directory, in order: find, create, remove.

Implements: MappedFileQueue (spec: store-formats, section 9)
The directory itself is the list: nothing is cached here, so two processes never disagree about which files there are.
A file under another name than 20 digits is not the store's (a segment in the making ends in `.creating`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from store.errors import ForeignFile, MissingSegment, NotAStore, SegmentRemoved, SegmentSizeMismatch
from store.files import file_io
from store.files.segment import NAME_DIGITS, Segment, file_name

OFFSET_MAX = 2**63 - 1
SEGMENT_BYTES_MAX = 2**31 - 1  # mappedFileSizeCommitLog is a Java int


def named_files(directory: Path | str) -> list[tuple[int, int]]:
    """(base offset, bytes) of every file whose name is an offset, ascending; none when there is no directory."""
    return sorted((base, status.st_size) for base, status in _stated(directory))


def stated_files(directory: Path | str) -> list[tuple[int, os.stat_result]]:
    """Return the files like `named_files`, with all that stat gives. A file that retention just deleted is left out.

    Raises ForeignFile for what has such a name and is no file, or names an offset that no log reaches.
    """
    return sorted(_stated(directory), key=lambda file: file[0])


def changed_files(directory: Path | str) -> list[tuple[int, int, int, int, int]]:
    """Return (base offset, bytes, inode, ctime and mtime in ns) of each file, small enough for very many.
    mtime alone is not enough: a copy may keep it, and get a deleted file's inode.
    """
    return sorted(
        (base, status.st_size, status.st_ino, status.st_ctime_ns, status.st_mtime_ns)
        for base, status in _stated(directory)
    )


def _stated(directory: Path | str) -> Iterator[tuple[int, os.stat_result]]:
    """Yield the files of a directory, in its own order."""
    try:
        entries = os.scandir(directory)
    except FileNotFoundError:
        return
    except PermissionError:
        raise file_io.denied(Path(directory)) from None
    with entries:
        for entry in entries:
            name = entry.name
            if len(name) != NAME_DIGITS or not is_offset(name):
                continue
            try:
                base, status = int(name), entry.stat()
            except FileNotFoundError:
                continue
            if not stat.S_ISREG(status.st_mode):
                raise ForeignFile(entry.path, "it has the name of a log or queue file, but is not a regular file")
            if base > OFFSET_MAX:
                raise ForeignFile(entry.path, f"its name is an offset above {OFFSET_MAX}, which no log reaches")
            yield base, status


def is_offset(name: str) -> bool:
    """Return whether a file's name is a log offset: twenty ASCII digits."""
    return len(name) == NAME_DIGITS and name.isascii() and name.isdecimal()


def segment_bytes_of(directory: Path) -> int:
    """The segment size of a store that we did not make: the length that its files have.

    Raises NotAStore without files, SegmentSizeMismatch when they differ, ForeignFile.
    """
    return _one_length(directory, named_files(directory))


def _one_length(directory: Path, files: Sequence[tuple[int, int]]) -> int:
    sizes = [(base, size) for base, size in files if size]
    if not sizes:
        raise NotAStore(str(directory), "it holds no commit log files (names of 20 digits)")
    segment_bytes = sizes[0][1]
    for base, size in sizes:
        if size != segment_bytes:
            raise SegmentSizeMismatch(str(directory / file_name(base)), size, segment_bytes)
    if segment_bytes > SEGMENT_BYTES_MAX:
        what = f"{segment_bytes} bytes long, and a segment has at most {SEGMENT_BYTES_MAX}"
        raise ForeignFile(str(directory / file_name(sizes[0][0])), what)
    return segment_bytes


class SegmentFiles:
    """The files of one log, each `segment_bytes` long, without gaps."""

    def __init__(self, directory: Path | str, segment_bytes: int) -> None:
        self.directory = Path(directory)
        self.segment_bytes = segment_bytes

    @classmethod
    def listed(
        cls, directory: Path, segment_bytes: int | None = None, named: list[tuple[int, int]] | None = None
    ) -> tuple[Self, list[int]]:
        """A log's files, and the offsets of all that are there, by one look, or as they are named: there may be very
        many. Raises as `segment_bytes_of`, when the length is not given, and as `base_offsets`.
        """
        named = named_files(directory) if named is None else named
        files = cls(directory, segment_bytes or _one_length(directory, named))
        return files, files._checked(named)

    def base_of(self, offset: int) -> int:
        """The base offset of the segment that holds `offset`."""
        return offset - offset % self.segment_bytes

    def path_of(self, base_offset: int) -> Path:
        """The file of that segment."""
        return self.directory / file_name(base_offset)

    def base_offsets(self) -> list[int]:
        """Return every segment there is, ascending: a fresh look at the directory.

        Raises SegmentSizeMismatch for a file of another length, MissingSegment for a gap, ForeignFile for a name that
        no segment has. An empty last file (a creation that a RocketMQ broker did not finish) does not count.
        """
        return self._checked(named_files(self.directory))

    def _checked(self, files: list[tuple[int, int]]) -> list[int]:
        if files and files[-1][1] == 0:
            files.pop()
        for base, size in files:
            if size != self.segment_bytes:
                raise SegmentSizeMismatch(str(self.path_of(base)), size, self.segment_bytes)
            if base % self.segment_bytes:
                what = f"its name is not a multiple of {self.segment_bytes}, the length of this log's segments"
                raise ForeignFile(str(self.path_of(base)), what)
        bases = [base for base, _ in files]
        for base, following in zip(bases, bases[1:], strict=False):
            if following != base + self.segment_bytes:
                raise MissingSegment(str(self.path_of(base + self.segment_bytes)), base + self.segment_bytes)
        return bases

    def open(self, base_offset: int, writable: bool = False) -> Segment:
        """Map the segment that starts at `base_offset`. Raises SegmentRemoved, SegmentSizeMismatch."""
        path = self.path_of(base_offset)
        try:
            return Segment.open(path, writable, self.segment_bytes)
        except FileNotFoundError as error:
            raise SegmentRemoved(str(path), base_offset) from error

    def descriptor(self, base_offset: int) -> int:
        """The open file of that segment, for who reads a few bytes of it and closes it. Raises as `open`."""
        path = f"{self.directory}/{file_name(base_offset)}"
        try:
            fd = file_io.open_file(path, writable=False)
        except FileNotFoundError as error:
            raise SegmentRemoved(path, base_offset) from error
        actual_bytes = os.fstat(fd).st_size
        if actual_bytes != self.segment_bytes:
            os.close(fd)
            raise SegmentSizeMismatch(path, actual_bytes, self.segment_bytes)
        return fd

    def parts(self, start: int, end: int) -> Iterator[tuple[Segment, int, int]]:
        """Yield each segment that has bytes of [start, end), and from which position to which it has them.

        A segment is open until the next one is asked for. Raises SegmentRemoved, SegmentSizeMismatch.
        """
        while start < end:
            base = self.base_of(start)
            stop = min(end, base + self.segment_bytes)
            with self.open(base) as segment:
                yield segment, start - base, stop - base
            start = stop

    def reserve(self, base_offset: int) -> None:
        """See that the file exists, with all its blocks, on disk under its name. Raises OSError (ENOSPC).

        RocketMQ's own files are sparse: one that it made gets its blocks here.
        """
        path = self.path_of(base_offset)
        try:
            actual_bytes = path.stat().st_size
        except FileNotFoundError:
            file_io.make_directories(self.directory)
            file_io.create_reserved(path, self.segment_bytes)
            return
        if actual_bytes != self.segment_bytes:
            raise SegmentSizeMismatch(str(path), actual_bytes, self.segment_bytes)
        file_io.reserve_path(path, 0, self.segment_bytes)

    def create(self, base_offset: int) -> Segment:
        """Create a segment like `reserve`, and open it for writing."""
        self.reserve(base_offset)
        return self.open(base_offset, writable=True)

    def is_unused(self, base_offset: int) -> bool:
        """Whether the file holds nothing but zeros; blocks never written are not read for that."""
        with self.open(base_offset) as segment:
            ranges = list(file_io.data_ranges(segment.fd, 0, segment.size_bytes))
            return not any(segment.array[low:high].any() for low, high in ranges)

    def remove(self, base_offset: int) -> None:
        """Delete the file, durably. Who has it mapped keeps its bytes."""
        file_io.unlink(self.path_of(base_offset))
        file_io.sync_directory(self.directory)

    def remove_leftovers(self) -> None:
        """Delete what a creation that was killed left behind. Only while no allocator runs."""
        if not self.directory.is_dir():
            return
        for path in self.directory.glob("*" + file_io.CREATING_SUFFIX):
            file_io.unlink(path)
        files = named_files(self.directory)
        if files and files[-1][1] == 0:
            self.remove(files[-1][0])
