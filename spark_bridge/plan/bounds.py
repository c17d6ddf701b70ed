"""From offsets and moments in options to the parts of queues that are read; missing parts are reported."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from spark_bridge.options.queues import QueueMoment
from spark_bridge.options.ranges import Range
from spark_bridge.options.read import ReadOptions
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan.log_times import LogTimes
from spark_bridge.split.splits import LogExtent, Queue, QueueBounds, Selection
from spark_bridge.split.stored import StoredBounds, StoredByQueue
from store.errors import StoreError
from store.files.segment import file_name


class OffsetsLost(StoreError):
    """Raised when messages that a read names by offset are not in the store.

    Next: give offsets in the range that the error names, or `failOnDataLoss=false`.
    """

    code = "OFFSETS_LOST"

    def __init__(self, queue: Queue, log: LogExtent, asked: str, start: int, end: int) -> None:
        segment = file_name(log.min_physical_offset - log.min_physical_offset % log.segment_bytes)
        super().__init__(
            f"{queue.directory}: {asked} of queue {queue.queue_id} of topic {queue.topic!r}: offsets {start} to {end}"
            f" are missing; it holds {queue.first} up to {queue.end} (the log begins in {log.commitlog}/{segment});"
            " give offsets in that range, or failOnDataLoss=false to read what there is of them"
        )
        self.start, self.end = start, end


def stored_bounds(options: ReadOptions, broker_name: str, now_ms: int) -> tuple[StoredBounds, ...]:
    """The times that options give for one broker's queues. Raises InvalidOption for one that ends before it begins."""
    by_queue: dict[tuple[str | None, int | None], StoredBounds] = {}
    for moments, is_start in ((options.starting_moments, True), (options.ending_moments, False)):
        for item in _of_broker(moments, broker_name):
            key = (item.queue.topic, item.queue.queue_id) if item.queue is not None else (None, None)
            known = by_queue.get(key, StoredBounds(key[0], key[1], None, None))
            at = item.moment.at(now_ms)
            by_queue[key] = known._replace(from_ms=at) if is_start else known._replace(until_ms=at)
    for bound in by_queue.values():
        if bound.from_ms is not None and bound.until_ms is not None and bound.until_ms < bound.from_ms:
            raise InvalidOption(f"the end is before the start: from {bound.from_ms} to {bound.until_ms} ms")
    return tuple(by_queue.values())


def _of_broker(moments: Iterable[QueueMoment], broker_name: str) -> list[QueueMoment]:
    return [item for item in moments if item.queue is None or item.queue.is_of(broker_name)]


class BoundsOfQueues:
    """The bounds of a plan's queues, checked, and made narrower by the times asked for: queue by queue, as each is
    looked at."""

    def __init__(self, options: ReadOptions, selection: Selection, times: LogTimes) -> None:
        self._options, self._selection, self._times, self._log = options, selection, times, times.log
        self._given = selection.bounds_by_queue()
        self._starts = {item.queue[:2] for item in options.starting_offsets if item.offset >= 0}
        self._stored = StoredByQueue(selection.stored)
        self._by_queue: dict[tuple[str, int], tuple[int, int | None]] = {}

    def look(self, queue: Queue) -> None:
        """Take its bounds. Raises OffsetsLost (unless failOnDataLoss is off), InvalidOption."""
        key = queue.topic, queue.queue_id
        first, end = self._given.get(key, (0, None))
        self._check(queue, first, end)
        if not self._selection.stored:
            return
        log = self._log
        from_ms, until_ms = self._stored.times_of(*key)
        if from_ms is not None:
            first = max(first, offset_at(queue, self._times, from_ms))
            is_late = first >= queue.end and log.reput_from_offset == log.max_physical_offset
            if self._options.fail_when_too_late and is_late:
                what = f"queue {queue.queue_id} of topic {queue.topic!r} has no message stored at or after {from_ms} ms"
                raise InvalidOption(f"startingOffsetsByTimestampStrategy=error: {what}")
        if until_ms is not None:
            offset = offset_at(queue, self._times, until_ms, unknown_is_before=True)
            if offset < queue.end:  # else what is not dispatched yet may be earlier still
                end = offset if end is None else min(offset, end)
        self._by_queue[key] = first, end

    def _check(self, queue: Queue, first: int, end: int | None) -> None:
        if not self._options.rows.fail_on_data_loss or (end is not None and end <= first):
            return
        log = self._log
        if (queue.topic, queue.queue_id) in self._starts and first < queue.first:
            raise OffsetsLost(queue, log, "startingOffsets", first, queue.first - 1)
        if log.reput_from_offset < log.max_physical_offset:
            return  # what is not dispatched yet may hold them
        if first > queue.end:
            raise OffsetsLost(queue, log, "startingOffsets", queue.end, first - 1)
        if end is not None and end > queue.end:
            raise OffsetsLost(queue, log, "endingOffsets", queue.end, end - 1)

    def narrowed(self) -> tuple[Selection, QueueBounds]:
        """The selection with the bounds found; and those of them that count beyond what is dispatched: where a queue's
        messages begin that were stored from a time on says nothing there."""
        if not self._selection.stored:
            return self._selection, self._selection.bounds
        bounds = _listed({**self._given, **self._by_queue})
        beyond = {key: part for key, part in self._by_queue.items() if key in self._given or part[1] is not None}
        return replace(self._selection, bounds=bounds), _listed({**self._given, **beyond})


def _listed(bounds: Mapping[tuple[str, int], tuple[int, int | None]]) -> QueueBounds:
    return tuple((*key, *part) for key, part in sorted(bounds.items()))


def offset_at(queue: Queue, times: LogTimes, timestamp_ms: int, *, unknown_is_before: bool = False) -> int:
    """The queue offset of the first message stored at or after a time, as RocketMQ 5 finds it; the end without one.

    A message whose time cannot be read counts as after it, unless a part ends there: neither leaves one out for that.
    """
    entries, log = queue.entries, times.log
    if queue.end <= queue.first:
        return queue.end
    below, above = times.around(timestamp_ms)
    numbers = range(queue.end)
    low = bisect.bisect_left(numbers, below, queue.first, key=entries.physical_offset)
    high = bisect.bisect_left(numbers, above, low, key=entries.physical_offset)
    while low < high:
        middle = (low + high) // 2
        offset = entries.physical_offset(middle)
        if offset < log.min_physical_offset:
            is_before = True
        else:
            stored_ms = times.stored_ms(offset)
            is_before = unknown_is_before if stored_ms is None else stored_ms < timestamp_ms
        if is_before:
            low = middle + 1
        else:
            high = middle
    return low


def pruned_by_time(log: LogExtent, stored: Sequence[StoredBounds]) -> LogExtent:
    """The part of the log in whose segments records of that time are, when one time is asked for of all queues.

    Records lie in the order of their times, unless the broker's clock was put back.
    """
    whole = next((bound for bound in stored if bound.topic is None), None)
    if whole is None or log.max_physical_offset <= log.min_physical_offset:
        return log
    with LogTimes(log) as times:
        start, high = times.part_between(Range(whole.from_ms, whole.until_ms))
    reput = min(max(log.reput_from_offset, start), high)
    return replace(log, min_physical_offset=start, reput_from_offset=reput, max_physical_offset=high)
