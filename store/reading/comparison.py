"""Compares two commit logs byte for byte where both have bytes, whatever their segments' sizes.

A replica's log must equal its master's in every byte of the records and of what a blank record leaves unused, because
replication copies both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np

from store.files.segment_files import SegmentFiles
from store.message.record import Kind, decode
from store.reading.log_reader import LogReader
from store.reading.walk import walk_segment

STEP_BYTES = 4 << 20


class Comparison(NamedTuple):
    """The common range [start, end) and the first difference in it; None where they are equal."""

    start: int
    end: int
    differs_at: int | None = None
    bytes_there: tuple[int, int] = (0, 0)

    @property
    def common_bytes(self) -> int:
        """Return how many bytes both logs have."""
        return max(0, self.end - self.start)


def compare(left: LogReader, right: LogReader, on_progress: Callable[[int, int], None] | None = None) -> Comparison:
    """Compare the range that both hold; how much is done is said in bytes."""
    start, end = max(left.min_offset, right.min_offset), min(left.max_offset, right.max_offset)
    if left.files is None or right.files is None or start >= end:
        return Comparison(start, start)
    for at, stop in _pieces(left.files, right.files, start, end):
        with ExitStack() as stack:
            parts = []
            for files in (left.files, right.files):
                segment = stack.enter_context(files.open(files.base_of(at)))
                parts.append(segment.array[at - segment.base_offset : stop - segment.base_offset])
            for step in range(0, stop - at, STEP_BYTES):
                if on_progress is not None:
                    on_progress(at + step - start, end - start)
                ours, theirs = (part[step : step + STEP_BYTES] for part in parts)
                if not np.array_equal(ours, theirs):
                    index = int((ours != theirs).argmax())
                    return Comparison(start, end, at + step + index, (int(ours[index]), int(theirs[index])))
    return Comparison(start, end)


def _pieces(left: SegmentFiles, right: SegmentFiles, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Ranges that lie in one segment of both logs."""
    while start < end:
        stop = min(end, *(files.base_of(start) + files.segment_bytes for files in (left, right)))
        yield start, stop
        start = stop


def what_lies_at(reader: LogReader, offset: int) -> str:
    """Return in words which record holds the byte at `offset`."""
    assert reader.files is not None
    with reader.files.open(reader.files.base_of(offset)) as segment:
        for step in walk_segment(segment, 0, reader.max_offset):
            kind, first = step.inspection.kind, step.physical_offset
            if kind is Kind.MESSAGE and offset < first + step.inspection.size:
                message = decode(step.record, check_body_crc=False)
                queue = f"{message.topic}/{message.queue_id}#{message.queue_offset}"
                return f"byte {offset - first} of the record at offset {first} ({queue}, {step.inspection.size} bytes)"
            if kind is not Kind.MESSAGE:
                why = f"{kind.value} {step.inspection.reason}".rstrip()
                return f"byte {offset - first} after offset {first} ({why})"
    return "after the last record"
