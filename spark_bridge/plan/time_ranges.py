"""What of a log and of its queues a read has to look at because of ranges: never less than the messages inside of them.

Messages lie in the order of their times unless a broker's clock was put back, or another broker's, which is behind,
went on with the log. So times are looked for with `CLOCK_SLACK_MS` to spare at both ends; the records are asked for
their own times. A time that cannot be read cuts nothing.
"""

from __future__ import annotations

from dataclasses import replace

from spark_bridge.options.ranges import Range, Ranges
from spark_bridge.plan.bounds import offset_at
from spark_bridge.plan.log_times import LogTimes
from spark_bridge.split.splits import LogExtent, Queue
from store.errors import StoreError
from store.message.topics import is_lmq

CLOCK_SLACK_MS = 15 * 60_000


def cut_by_time(log: LogExtent, ranges: Ranges) -> Ranges:
    """The ranges, with the part of the log in whose segments messages of the times wanted may be."""
    asked = ranges.stored_ms.widened(CLOCK_SLACK_MS)
    if asked == Range() or log.max_physical_offset <= log.min_physical_offset:
        return ranges
    with LogTimes(log) as times:
        part = times.part_between(asked)
    return ranges._replace(physical_offsets=ranges.physical_offsets.met(Range(*part)))


def narrowed(queue: Queue, times: LogTimes, ranges: Ranges) -> Queue:
    """The queue cut to the entries that may name messages inside of the ranges."""
    first, end = queue.first, queue.end
    if not is_lmq(queue.topic):  # its entries name messages by their own queues' offsets
        first, end = ranges.queue_offsets.within(first, end)
    low, high = ranges.physical_offsets
    with queue.entries:
        if low is not None:
            first = max(first, queue.entries.end_below(low))
        if high is not None:
            end = min(end, queue.entries.end_below(high))
        asked = ranges.stored_ms.widened(CLOCK_SLACK_MS)
        if asked != Range() and first < end:
            first, end = _between(replace(queue, first=first, end=end), times, asked)
    return replace(queue, first=first, end=max(first, end))


def _between(queue: Queue, times: LogTimes, asked: Range) -> tuple[int, int]:
    try:
        first = queue.first if asked.first is None else offset_at(queue, times, asked.first)
        end = queue.end if asked.end is None else offset_at(queue, times, asked.end, unknown_is_before=True)
    except (OSError, StoreError):  # who reads it tells
        return queue.first, queue.end
    return first, end
