"""The last record's boundary at or before an offset of a log, and that record: where two histories can be parted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from store.files.segment import Segment
from store.files.segment_files import SegmentFiles
from store.message import rows_kernel as kernel
from store.message.record import Message, decode
from store.message.rows_kernel import Row, ScanStop

ROWS = 8192


class Boundary(NamedTuple):
    """`offset` is where the last record ends, or the log begins; None without a record before it."""

    offset: int
    last: Message | None


def boundary_before(files: SegmentFiles, start: int, offset: int) -> Boundary:
    """The last boundary in [start, offset]; `start` is one. Records that are damaged end the search before them."""
    base = files.base_of(offset)
    boundary, last = offset, None
    if offset > base:
        boundary, last = _in_segment(files, max(base, start), offset)
    while last is None and base > start:
        base -= files.segment_bytes
        end, last = _in_segment(files, max(base, start), base + files.segment_bytes)
        if end < base + files.segment_bytes:
            boundary = end  # what follows there is no record
    return Boundary(boundary, last)


def _in_segment(files: SegmentFiles, start: int, offset: int) -> tuple[int, Message | None]:
    """The last boundary in [start, offset], which one segment has, and the message before it."""
    base = files.base_of(start)
    with files.open(base) as segment:
        rows = np.zeros((ROWS, len(Row)), np.int64)
        position, last_at, last_bytes = start - base, -1, 0
        while True:
            position, count, stop = kernel.scan(segment.array, position, offset - base, base, rows)
            if count:
                last_at, last_bytes = int(rows[count - 1, Row.POSITION]), int(rows[count - 1, Row.SIZE])
            if stop != ScanStop.ROWS_FULL:
                break
        if stop == ScanStop.BLANK and offset == base + segment.size_bytes:
            position = segment.size_bytes
        return base + int(position), _message(segment, last_at, last_bytes)


def _message(segment: Segment, position: int, size: int) -> Message | None:
    if position < 0:
        return None
    return decode(bytes(segment.view[position : position + size]), check_body_crc=False)
