"""What a rewind cuts off a log, kept in one file of the store's root: `slipstream.kept-OFFSET`.

Its bytes are the log's from OFFSET on, as they lay there; a second one of that offset has a number behind it. Every
record names its place in the log, so the file tells by itself where it lay: `slipstream log cat FILE` reads it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from store.errors import NotAStore, StoreError
from store.files import file_io, mapped_files
from store.files.own_files import CHUNK_BYTES
from store.files.segment import NAME_DIGITS
from store.files.segment_files import SegmentFiles
from store.message.record import BLANK_BYTES, MAGIC_AT, Kind, inspect
from store.names import KEPT_CUT

FREE_BYTES = 16 << 20  # what a file system keeps beside the file: names, block maps, the cut's own journal
SIZE_BYTES, MAGIC_BYTES, LENGTH_BYTES = 4, 4, 2


class NoRoomToKeep(StoreError):
    """Raised when there is no room to keep what a rewind would cut off.

    Next: free disk space, or give up those records: `slipstream replica rewind STORE --with OTHER --discard`.
    """

    code = "NO_ROOM_TO_KEEP"

    def __init__(self, root: Path, wanted_bytes: int) -> None:
        super().__init__(
            f"{root}: no room for the {wanted_bytes} bytes that the rewind would cut off and keep; nothing was changed."
            " Free disk space, or give up those records with --discard"
        )


def keep(root: Path, files: SegmentFiles, offset: int, end: int) -> Path:
    """Copy the log from `offset` on beside it, durably; the file. One that holds just that already is taken.

    `end` is behind the last byte that is not zero. Raises NoRoomToKeep, OSError; then nothing of it is left.
    """
    segment_end = files.base_of(end - 1) + files.segment_bytes
    end = min(end + LENGTH_BYTES, segment_end)  # a record without properties ends with their length, two zeros
    parts = list(_parts(files, offset, end))
    if (before := _same(root, files, offset, end, parts)) is not None:
        file_io.sync_path(before)
        file_io.sync_directory(root)
        return before
    wanted = sum(high - low for low, high in parts)
    space = os.statvfs(root)
    if space.f_bavail * space.f_frsize < wanted + FREE_BYTES:
        raise NoRoomToKeep(root, wanted)
    path = next(path for path in _names(root, offset) if not path.exists())
    creating = path.with_name(path.name + file_io.CREATING_SUFFIX)
    file_io.unlink(creating)
    fd = os.open(creating, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, file_io.FILE_MODE)
    try:
        file_io.truncate(fd, end - offset)
        for low, high in parts:
            file_io.write_at(fd, _bytes(files, low, high), low - offset)
        file_io.sync_file(fd)
        file_io.rename(creating, path)
    except OSError as error:
        if error.errno in file_io.NO_ROOM:
            raise NoRoomToKeep(root, wanted) from error
        raise
    finally:
        os.close(fd)
        file_io.unlink(creating)
    file_io.sync_directory(root)
    return path


def _names(root: Path, offset: int) -> Iterator[Path]:
    name = f"{KEPT_CUT}-{offset:0{NAME_DIGITS}d}"
    yield root / name
    number = 2
    while True:
        yield root / f"{name}-{number}"
        number += 1


def _parts(files: SegmentFiles, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The log's ranges that may hold something else than zeros, in pieces that memory is spared for."""
    while start < end:
        base = files.base_of(start)
        stop = min(end, base + files.segment_bytes)
        with files.open(base) as segment:
            for low, high in list(file_io.data_ranges(segment.fd, start - base, stop - base)):
                for at in range(low, high, CHUNK_BYTES):
                    yield base + at, base + min(at + CHUNK_BYTES, high)
        start = stop


def _bytes(files: SegmentFiles, start: int, end: int) -> bytes:
    base = files.base_of(start)
    with files.open(base) as segment:
        return bytes(segment.view[start - base : end - base])


def _same(root: Path, files: SegmentFiles, offset: int, end: int, parts: list[tuple[int, int]]) -> Path | None:
    """The file in which a rewind that was killed kept just these bytes."""
    for path in _names(root, offset):
        if not path.exists():
            return None
        if path.stat().st_size != end - offset:
            continue
        with path.open("rb") as file:
            fd = file.fileno()
            if all(os.pread(fd, high - low, low - offset) == _bytes(files, low, high) for low, high in parts):
                return path
    return None


def records(path: Path) -> Iterator[memoryview]:
    """The whole records in such a file, in order. Raises NotAStore for a file that begins with none."""
    if path.stat().st_size < SIZE_BYTES + MAGIC_BYTES:
        raise NotAStore(str(path), "it holds no record")
    view, position = mapped_files.map_array(path).data, 0
    while len(view) - position >= BLANK_BYTES:
        inspection = inspect(view, position, None, check_body_crc=True)
        if inspection.kind is Kind.MESSAGE:
            yield view[position : position + inspection.size]
            position += inspection.size
        elif inspection.kind is Kind.BLANK and (size := _blank_bytes(view, position)) > 0:
            position += size
        elif position == 0:
            why = inspection.reason or "it begins with no record"
            raise NotAStore(str(path), f"it is not a file that a rewind kept ({why})")
        else:
            return  # a record's beginning: the log ended there


def _blank_bytes(view: memoryview, position: int) -> int:
    """Return how far the segment that ended there reached."""
    size = int.from_bytes(view[position : position + MAGIC_AT], "big")
    return size if BLANK_BYTES <= size <= len(view) - position else 0
