"""The last bytes of a log, as far back as it takes to tell one history from another.

They hold at least one head of a record, with its offset and store time, where there is one within 16 MiB: two messages
may be the same, their records are not. A segment that has a record of its own is enough: the one before it may be gone
elsewhere.
"""

from __future__ import annotations

from store.files.segment_files import SegmentFiles
from store.message import rows_kernel as kernel
from store.recovery.log_end import LOOK_BACK_BYTES, new_rows

OVERLAP_BYTES = 64 * 1024
# A slave that asks a master from 0 or 1 does not get the bytes from there on. They are those of a size of 16 MiB and
# more, or of 64 KiB: the record's other bytes tell histories apart.
LOWEST_START = 2


def last_bytes(files: SegmentFiles, begin: int, end: int, stretch: int = OVERLAP_BYTES) -> tuple[int, bytes]:
    """Return where the log's last bytes begin, never at 0 or 1, and the bytes from there up to `end`.

    None of an empty log. `begin`: where the log begins; `stretch`: how many bytes, if they hold the head of a record.
    Raises SegmentRemoved, SegmentSizeMismatch.
    """
    start = max(begin, end - stretch)
    while start > begin and stretch < LOOK_BACK_BYTES and not _has_record(files, start, end):
        stretch *= 4
        start = max(begin, end - stretch)
    base = files.base_of(max(end - 1, 0))
    if start < base and _has_record(files, base, end):
        start = base
    start = max(start, LOWEST_START)
    if start >= end:
        return end, b""
    return start, b"".join(bytes(segment.view[low:high]) for segment, low, high in files.parts(start, end))


def _has_record(files: SegmentFiles, start: int, end: int) -> bool:
    rows = new_rows(1)
    return any(
        kernel.find_record(segment.array, low, high, segment.base_offset, rows) >= 0
        for segment, low, high in files.parts(start, end)
    )
