"""Where in a log a time begins: by bisection over the store times of its records, because they rise with the offsets.

They do except where a clock was set back, so the answer may be early by such a correction: the caller also compares
each record's own time.
"""

from __future__ import annotations

from bisect import bisect_left

from store.files.segment import Segment
from store.files.segment_files import SegmentFiles
from store.message.record import store_timestamp_of
from store.reading.history import stored_ms
from store.reading.log_reader import LogReader
from store.reading.walk import next_record

CLOCK_STEP_MS = 60_000  # that far a clock may have been set back
NEAR_BYTES = 1 << 16  # what is read record by record


def first_since(reader: LogReader, moment_ms: int) -> int:
    """A record's offset, or the log's end: all that was stored from that time on lies there or behind it.

    Raises OSError, SegmentRemoved, SegmentSizeMismatch, MissingSegment.
    """
    files, sought_ms = reader.files, moment_ms - CLOCK_STEP_MS
    if files is None or reader.min_offset >= reader.max_offset:
        return reader.max_offset
    bases = [base for base in files.base_offsets() if reader.min_offset < base < reader.max_offset]
    later = bisect_left(bases, sought_ms, key=lambda base: _begins_ms(files, base))
    begin = bases[later - 1] if later else reader.min_offset
    end = bases[later] if later < len(bases) else reader.max_offset
    base = files.base_of(begin)
    with files.open(base) as segment:
        return base + _in_segment(segment, begin - base, end - base, sought_ms)


def _begins_ms(files: SegmentFiles, base: int) -> int:
    begins = stored_ms(files, base)
    return 0 if begins is None else begins


def _in_segment(segment: Segment, low: int, high: int, sought_ms: int) -> int:
    """The last position known to be a record's before that time, at most NEAR_BYTES before the first that is not."""
    while high - low > NEAR_BYTES:
        middle = (low + high) // 2
        position = next_record(segment, middle, segment.base_offset + high)
        if position is None or (store_timestamp_of(segment.view, position) or 0) >= sought_ms:
            high = middle
        else:
            low = position
    return low
