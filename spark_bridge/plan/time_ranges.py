"""What of a log and of its queues a read has to look at because of ranges: never less than the messages inside of them.

Messages lie in the order of their times unless a broker's clock was put back, or another broker's, which is behind,
went on with the log. So times are looked for with `CLOCK_SLACK_MS` to spare at both ends; the records are asked for
their own times. A time that cannot be read cuts nothing.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import replace

from spark_bridge.options.ranges import Range, Ranges
from spark_bridge.split.splits import LogExtent, Queue
from store.errors import StoreError
from store.files.segment_files import SegmentFiles
from store.message.topics import is_lmq
from store.reading.history import stored_ms

CLOCK_SLACK_MS = 15 * 60_000


class _NoTime(Exception):
    """A record whose time has to be known cannot be read."""


def cut_by_time(log: LogExtent, ranges: Ranges) -> Ranges:
    """The ranges, with the part of the log in whose segments messages of the times wanted may be."""
    asked = ranges.stored_ms.widened(CLOCK_SLACK_MS)
    low, high = log.min_physical_offset, log.max_physical_offset
    if asked == Range() or high <= low:
        return ranges
    files = SegmentFiles(log.commitlog, log.segment_bytes)
    bases = range(files.base_of(low), high, log.segment_bytes)
    part = _bisected(asked, bases, lambda base: _stored_ms(files, max(base, low)))
    if part is None:
        return ranges
    before, behind = part
    start = bases[max(0, before - 1)]
    end = bases[behind] if behind < len(bases) else high
    return ranges._replace(physical_offsets=ranges.physical_offsets.met(Range(max(low, start), max(low, end))))


def narrowed(queue: Queue, log: LogExtent, ranges: Ranges) -> Queue:
    """The queue cut to the entries that may name messages inside of the ranges."""
    first, end = queue.first, queue.end
    if not is_lmq(queue.topic):  # its entries name messages by their own queues' offsets
        first, end = ranges.queue_offsets.within(first, end)
    low, high = ranges.physical_offsets
    if low is not None:
        first = max(first, queue.entries.end_below(low))
    if high is not None:
        end = min(end, queue.entries.end_below(high))
    asked = ranges.stored_ms.widened(CLOCK_SLACK_MS)
    if asked != Range() and first < end:
        files = SegmentFiles(log.commitlog, log.segment_bytes)
        numbers = range(first, end)
        part = _bisected(asked, numbers, lambda number: _stored_ms(files, _physical_offset(queue, number)))
        if part is not None:
            first, end = first + part[0], first + part[1]
    return replace(queue, first=first, end=max(first, end))


def _bisected(asked: Range, places: range, ms_of: Callable[[int], int]) -> tuple[int, int] | None:
    """How many of the places lie before the times asked for, and how many before their end; None: nobody knows."""
    try:
        before = 0 if asked.first is None else bisect.bisect_left(places, asked.first, key=ms_of)
        behind = len(places) if asked.end is None else bisect.bisect_left(places, asked.end, key=ms_of)
    except _NoTime:
        return None
    return before, max(before, behind)


def _physical_offset(queue: Queue, number: int) -> int:
    entries = queue.entries.entries(number, number + 1)
    if not len(entries):
        raise _NoTime
    return int(entries[0]["physical_offset"])


def _stored_ms(files: SegmentFiles, offset: int) -> int:
    try:
        time = stored_ms(files, offset)
    except (OSError, StoreError) as error:  # who reads it tells
        raise _NoTime from error
    if time is None:
        raise _NoTime
    return time
