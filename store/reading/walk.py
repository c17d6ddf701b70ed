"""From record to record through the log, and back onto a record from anywhere.

`walk` goes through whole segments in order and ends where no record follows; what it found there is its last step.
Nothing is copied: a step's record is a view of the mapped segment. Sound records are found by compiled code; what is
not one is looked at in Python, which says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ipc.arrays import Words
from store.errors import OffsetOutOfRange
from store.files import file_io
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles
from store.message import walk_kernel
from store.message.record import MAGIC_AT, Inspection, Kind, inspect
from store.message.walk_kernel import EVERY_RECORD, Head, Part, Stretch, WalkStop, fill_parts

_MAGIC = re.compile(rb"\xda\xa3\x20[\xa7\xab]", re.DOTALL)  # record.MAGIC_V1 and MAGIC_V2

ROOM_LEAST, ROOM_GROWS, ROOM_MOST = 64, 8, 1 << 14  # records that are found at a time: few for who wants few


class Step(NamedTuple):
    """The finding at `physical_offset`; `record` is empty unless a record's bytes are known."""

    physical_offset: int
    record: memoryview
    inspection: Inspection


def walk(files: SegmentFiles, start: int, end: int | None = None, *, check_body_crc: bool = False) -> Iterator[Step]:
    """Yield every record and blank record from `start`, a record's first byte, below `end`.

    The last step is of another kind (end of log, corrupt, incomplete) unless `end` or the last segment's end is
    reached. Raises OffsetOutOfRange, MissingSegment, SegmentSizeMismatch.
    """
    bases = files.base_offsets()
    log_end = bases[-1] + files.segment_bytes if bases else 0
    if not bases or not bases[0] <= start <= log_end:
        raise OffsetOutOfRange(str(files.directory), start, bases[0] if bases else 0, log_end)
    for base in bases:
        if base + files.segment_bytes <= start:
            continue
        if end is not None and base >= end:
            return
        with files.open(base) as segment:
            kind = Kind.END_OF_LOG
            for step in walk_segment(segment, max(start - base, 0), end, check_body_crc=check_body_crc):
                kind = step.inspection.kind
                yield step
        if kind is not Kind.BLANK:
            return


def walk_segment(
    segment: Segment, position: int = 0, end: int | None = None, *, check_body_crc: bool = False
) -> Iterator[Step]:
    """The same inside one segment; its last step is the blank record in a full one. `end` is a log offset."""
    view, base = segment.view, segment.base_offset
    limit = segment.size_bytes if end is None else min(end - base, segment.size_bytes)
    if not check_body_crc:
        for starts, sizes in sound_records(segment, position, limit):
            for at, size in zip(starts.tolist(), sizes.tolist(), strict=True):
                position = at + size
                yield Step(base + at, view[at:position], Inspection(Kind.MESSAGE, size))
    while position < limit:
        inspection = inspect(view, position, base + position, check_body_crc=check_body_crc, limit=limit)
        record = view[position : position + inspection.size] if inspection.kind is Kind.MESSAGE else view[:0]
        yield Step(base + position, record, inspection)
        if inspection.kind is not Kind.MESSAGE:
            return
        position += inspection.size


def sound_records(segment: Segment, position: int, limit: int) -> Iterator[tuple[Words, Words]]:
    """Starts and sizes of the records from `position`, a record's first byte, below `limit`: some at a time.

    It ends quietly where none follows that is whole, names its place, and whose lengths add up: `inspect` says why.
    """
    array = segment.array[: max(0, limit)]
    array.flags.writeable = False
    stretch = Stretch(position, limit, segment.size_bytes, segment.base_offset)
    room, stop, first_fault = ROOM_LEAST, WalkStop.FULL, -1
    while stop == WalkStop.FULL and first_fault < 0:
        heads, parts = (np.empty((len(columns), room), np.int64) for columns in (Head, Part))
        position, count, stop = walk_kernel.walk(array, position, stretch, EVERY_RECORD, heads, 0)
        starts, sizes = heads[Head.START, :count], heads[Head.SIZE, :count]
        first_fault = fill_parts(array, starts, sizes, parts)
        if first_fault >= 0:
            starts, sizes = starts[:first_fault], sizes[:first_fault]
        yield starts, sizes
        room = min(ROOM_GROWS * room, ROOM_MOST)


def next_record(segment: Segment, position: int, end: int | None = None, *, check_body_crc: bool = True) -> int | None:
    """The position of the first sound record at or behind `position`, None without one below `end` (a log offset)."""
    limit = segment.size_bytes if end is None else min(end - segment.base_offset, segment.size_bytes)
    for low, high in file_io.data_ranges(segment.fd, position + MAGIC_AT, limit):  # not blocks never written
        for match in _MAGIC.finditer(segment.view, low, high):
            at = match.start() - MAGIC_AT
            inspection = inspect(segment.view, at, segment.base_offset + at, check_body_crc=check_body_crc, limit=limit)
            if inspection.kind is Kind.MESSAGE:
                return at
    return None
