"""Two commit logs side by side, by offset: whatever their segments' sizes are."""

from __future__ import annotations

from pathlib import Path

from store.segment_files import SegmentFiles, segment_bytes_of

CHUNK_BYTES = 4 << 20


def first_difference(ours: Path, theirs: Path, start: int, end: int) -> int | None:
    """The first offset in [start, end) at which two commit log directories differ, None when they are the same."""
    left, right = _files(ours), _files(theirs)
    offset = start
    while offset < end:
        size = min(end - offset, CHUNK_BYTES)
        a, b = _bytes_at(left, offset, size), _bytes_at(right, offset, size)
        size = min(len(a), len(b))
        if a[:size] != b[:size]:
            return offset + next(i for i in range(size) if a[i] != b[i])
        offset += size
    return None


def _files(directory: Path) -> SegmentFiles:
    return SegmentFiles(directory, segment_bytes_of(directory))


def _bytes_at(files: SegmentFiles, offset: int, size: int) -> bytes:
    """Up to `size` bytes, never across a segment's end."""
    with files.open(files.base_of(offset)) as segment:
        begin = offset - segment.base_offset
        return bytes(segment.view[begin : begin + size])
