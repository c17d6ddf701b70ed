"""A journal of a change to the log, bound to the log it was made for: over any other log it is not finished.

It has a sum for each page that the change touches. While the change is under way a page is as it was, or as the change
leaves it, and what lies before it is as it was. Anything else somebody has written since, a Slipstream or a RocketMQ
broker or a copy: then the journal is set aside under a new name, and the log is left as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from store.files import file_io, set_aside, small_files
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles, named_files
from store.recovery.log_end import PAGE_BYTES, not_zero

log = logging.getLogger("slipstream")

Sums = NDArray[np.uint32]
SUM = np.dtype(">u4")
HEAD = Struct(">8sqqqIIq")  # magic, offset, bytes of the change, first segment, sums before and behind, segments
PART = Struct(">qq")  # a segment's base offset, sums
TOTAL_BYTES = sha256().digest_size
JOURNAL_BYTES_MAX = 1 << 32


class Unfinishable(ValueError):
    """Raised for a journal that is not to be finished; the text says why."""


class Bound(NamedTuple):
    """A change of the log from `offset` on, and the log as it was. `data` is to be written there; none: it is cut."""

    offset: int
    first_base: int
    before: int
    behind: int
    sums: dict[int, Sums]  # by segment, of its pages from `offset` on
    data: bytes = b""

    @classmethod
    def of(cls, files: SegmentFiles, offset: int, data: bytes = b"") -> Bound:
        """A change that is about to be made. Raises SegmentSizeMismatch."""
        first, sums = _first(files), _sums_of(files, offset, len(data))
        return cls(offset, first, _window(files, offset - PAGE_BYTES, offset), _behind(files, offset, data), sums, data)

    def require(self, files: SegmentFiles) -> None:
        """Raise Unfinishable where the log is not what the change began with, or would have come to by now."""
        if _first(files) != self.first_base:
            raise Unfinishable(f"the log began at offset {self.first_base}, but no longer does")
        offset, data = self.offset, self.data
        if self.before != _window(files, offset - PAGE_BYTES, offset) or self.behind != _behind(files, offset, data):
            raise Unfinishable(f"the log next to offset {offset} has changed since")
        new = _split(files, offset, data)
        for base, now in _sums_of(files, offset, len(data)).items():
            was, becomes = (_as_long(sums.get(base), len(now)) for sums in (self.sums, new))
            others = np.flatnonzero((now != was) & (now != becomes))
            if len(others):
                first = max(0, offset - base) // PAGE_BYTES
                at = max(offset, base + (first + int(others[0])) * PAGE_BYTES)
                raise Unfinishable(f"the log was written to since, at offset {at}")

    def encode(self, magic: bytes) -> bytes:
        """Return the bytes of the journal."""
        parts = [
            HEAD.pack(magic, self.offset, len(self.data), self.first_base, self.before, self.behind, len(self.sums))
        ]
        for base, sums in self.sums.items():
            parts += [PART.pack(base, len(sums)), sums.astype(SUM).tobytes()]
        said = b"".join([*parts, self.data])
        return said + sha256(said).digest()


class Journal:
    """The journal of one kind of change, in one file."""

    def __init__(self, path: Path, magic: bytes, files: SegmentFiles) -> None:
        self._path, self._magic, self._files = path, magic, files

    def run(self, offset: int, change: Callable[[Bound], object], data: bytes = b"") -> None:
        """Make a change, noted durably before it begins. Raises OSError, SegmentSizeMismatch, and as the change."""
        bound = Bound.of(self._files, offset, data)
        file_io.replace_file(self._path, bound.encode(self._magic))
        self._do(change, bound)

    def finish(self, change: Callable[[Bound], object]) -> Bound | None:
        """Make a change that was interrupted; None without one, and for one that is set aside. Raises as `run`."""
        try:
            content = small_files.read_small(self._path, JOURNAL_BYTES_MAX)
        except FileNotFoundError:
            return None
        try:
            bound = _decoded(content, self._magic)
            bound.require(self._files)
        except Unfinishable as why:
            log.warning(
                "%s: an interrupted change of the log cannot be finished: %s. The log was not changed. The journal is"
                " now %s: run `slipstream log verify`, repeat the command if you still want the change, then"
                " remove that file",
                self._path,
                why,
                set_aside.set_aside(self._path).name,
            )
            return None
        self._do(change, bound)
        return bound

    def _do(self, change: Callable[[Bound], object], bound: Bound) -> None:
        change(bound)
        file_io.unlink(self._path)
        file_io.sync_directory(self._path.parent)


def _decoded(content: bytes, magic: bytes) -> Bound:
    said, total = content[:-TOTAL_BYTES], content[-TOTAL_BYTES:]
    if len(said) < HEAD.size or sha256(said).digest() != total or not said.startswith(magic):
        raise Unfinishable("its journal is damaged or of another version, and names no log")
    _, offset, size, first_base, before, behind, segments = HEAD.unpack_from(said)
    at, sums = HEAD.size, {}
    for _ in range(segments):
        base, count = PART.unpack_from(said, at)
        at += PART.size
        sums[base] = np.frombuffer(said, SUM, count, at).astype(np.uint32)
        at += count * SUM.itemsize
    return Bound(offset, first_base, before, behind, sums, said[at : at + size])


def _first(files: SegmentFiles) -> int:
    return next(iter(_bases(files)), -1)


def _bases(files: SegmentFiles) -> list[int]:
    """A repair may find gaps."""
    return [base for base, size in named_files(files.directory) if size]


def _behind(files: SegmentFiles, offset: int, data: bytes) -> int:
    """Return the sum of the page behind what is to be written; a cut has nothing behind it."""
    end = offset + len(data)
    return _window(files, end, end + PAGE_BYTES) if data else 0


def _sums_of(files: SegmentFiles, offset: int, size: int) -> dict[int, Sums]:
    """Return the sums of the log's pages from `offset` on: `size` bytes of one segment, or all where that is 0."""
    last = files.base_of(offset) if size else None
    sums = {}
    for base in _bases(files):
        if base + files.segment_bytes <= offset or (last is not None and base > last):
            continue
        with files.open(base) as segment:
            low = max(0, offset - base)
            sums[base] = _page_sums(segment.array, low, low + size if size else _last_byte(segment, low))
    return sums


def _last_byte(segment: Segment, low: int) -> int:
    """Return where the bytes from `low` on that are not zero end."""
    return max((high for _, high in not_zero(segment, low)), default=low)


def _split(files: SegmentFiles, offset: int, data: bytes) -> dict[int, Sums]:
    """The sums that the pages get."""
    low = offset - files.base_of(offset)
    padded = np.zeros(low % PAGE_BYTES + len(data), np.uint8)
    padded[low % PAGE_BYTES :] = np.frombuffer(data, np.uint8)
    return {files.base_of(offset): _page_sums(padded, low % PAGE_BYTES, len(padded))} if data else {}


def _page_sums(array: NDArray[np.uint8], low: int, high: int) -> Sums:
    """A sum for each page from the one of `low` on, of what lies between `low` and `high` of it; 0 of zeros alone."""
    first = low // PAGE_BYTES * PAGE_BYTES
    return np.array(
        [_sum(array[max(at, low) : min(at + PAGE_BYTES, high)]) for at in range(first, high, PAGE_BYTES)], np.uint32
    )


def _sum(part: NDArray[np.uint8]) -> int:
    """Zeros behind count for nothing, so that a page's sum does not depend on where the bytes were said to end."""
    used = part.tobytes().rstrip(b"\0")
    return crc32(used) or 1 if used else 0


def _as_long(sums: Sums | None, count: int) -> Sums:
    """Pages that were not there have been zeros, or become zeros."""
    longer = np.zeros(count, np.uint32)
    if sums is not None:
        longer[: len(sums)] = sums[:count]
    return longer


def _window(files: SegmentFiles, start: int, end: int) -> int:
    """Return the sum of some bytes, as far as the log has them."""
    total = 0
    for base in {files.base_of(max(start, 0)), files.base_of(end - 1)}:
        if base < end and files.path_of(base).exists():
            with files.open(base) as segment:
                low, high = max(start - base, 0), min(end - base, segment.size_bytes)
                total ^= crc32(segment.array[low:high].tobytes(), crc32(b"%d" % (base + low)))
    return total
