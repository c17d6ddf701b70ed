"""Digests of ranges of a log: by them two logs are compared that lie on two hosts."""

from __future__ import annotations

import hashlib
from itertools import pairwise

from store.files.segment_files import SegmentFiles

BYTES_MAX = 64 << 20  # of one range: what one request may cost
PARTS_MAX = 256
STEP_BYTES = 1 << 20


def bounds(start: int, end: int, parts: int) -> list[int]:
    """Return where the parts of [start, end) begin, and the last one's end: equal ones, no empty ones at the end."""
    step = -(-(end - start) // parts)
    return [*range(start, end, step), end]


def digests(files: SegmentFiles, start: int, end: int, parts: int) -> list[str]:
    """The SHA-256 of each part of [start, end), all of it below the log's end. Raises SegmentRemoved."""
    return [_digest(files, low, high) for low, high in pairwise(bounds(start, end, parts))]


def _digest(files: SegmentFiles, start: int, end: int) -> str:
    digest = hashlib.sha256()
    for segment, low, high in files.parts(start, end):
        for at in range(low, high, STEP_BYTES):  # releases the interpreter for each step
            digest.update(segment.view[at : min(at + STEP_BYTES, high)])
    return digest.hexdigest()
