"""From offsets and moments that options give to the parts of queues that are read; what is not there is told."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import replace

from spark_bridge.options.queues import QueueMoment
from spark_bridge.options.read import ReadOptions
from spark_bridge.options.values import InvalidOption
from spark_bridge.split.splits import LogExtent, Queue, QueueBounds, Selection, StoredBounds
from store.errors import StoreError
from store.files.segment import file_name
from store.files.segment_files import SegmentFiles
from store.queues.consume_queue import ConsumeQueue
from store.queues.time_search import Log, files_of, offset_by_entries
from store.reading.history import stored_ms


class OffsetsLost(StoreError):
    """Messages that a read asks for by offset are not in the store (any more).

    Next: give offsets in the range that is named, or `failOnDataLoss=false`.
    """

    code = "OFFSETS_LOST"

    def __init__(self, queue: Queue, log: LogExtent, asked: str, start: int, end: int) -> None:
        segment = file_name(log.min_physical_offset - log.min_physical_offset % log.segment_bytes)
        super().__init__(
            f"{queue.directory}: {asked} of queue {queue.queue_id} of topic {queue.topic!r}: offsets {start} to {end}"
            f" are not there, it holds {queue.first} up to {queue.end} (the log begins in {log.commitlog}/{segment});"
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


def bounded(options: ReadOptions, log: LogExtent, queues: Sequence[Queue], selection: Selection) -> Selection:
    """The selection with the bounds of its queues checked, and made narrower by the times asked for.

    Raises OffsetsLost (unless failOnDataLoss is off), InvalidOption.
    """
    for queue in queues:
        _check(options, log, queue, selection)
    if not selection.stored:
        return selection
    given = {(topic, queue_id): (first, end) for topic, queue_id, first, end in selection.bounds}
    for queue in queues:
        key = queue.topic, queue.queue_id
        first, end = given.get(key, (0, None))
        from_ms, until_ms = _times_of(queue, selection.stored)
        if from_ms is not None:
            first = max(first, offset_at(queue, log, from_ms))
            if options.fail_when_too_late and first >= queue.end and log.reput_from_offset == log.max_physical_offset:
                what = f"queue {queue.queue_id} of topic {queue.topic!r} has no message stored at or after {from_ms} ms"
                raise InvalidOption(f"startingOffsetsByTimestampStrategy=error: {what}")
        if until_ms is not None:
            offset = offset_at(queue, log, until_ms)
            if offset < queue.end:  # else what is not dispatched yet may be earlier still
                end = offset if end is None else min(offset, end)
        given[key] = first, end
    bounds: QueueBounds = tuple((*key, *part) for key, part in sorted(given.items()))
    return replace(selection, bounds=bounds)


def _check(options: ReadOptions, log: LogExtent, queue: Queue, selection: Selection) -> None:
    first, end = selection.bounds_of(queue.topic, queue.queue_id)
    if not options.rows.fail_on_data_loss or (end is not None and end <= first):
        return
    starts = {item.queue[:2] for item in options.starting_offsets if item.offset >= 0}
    if (queue.topic, queue.queue_id) in starts and first < queue.first:
        raise OffsetsLost(queue, log, "startingOffsets", first, queue.first - 1)
    if log.reput_from_offset < log.max_physical_offset:
        return  # what is not dispatched yet may hold them
    if first > queue.end:
        raise OffsetsLost(queue, log, "startingOffsets", queue.end, first - 1)
    if end is not None and end > queue.end:
        raise OffsetsLost(queue, log, "endingOffsets", queue.end, end - 1)


def _times_of(queue: Queue, stored: Iterable[StoredBounds]) -> tuple[int | None, int | None]:
    for bound in stored:
        if bound.topic is None or (bound.topic, bound.queue_id) == (queue.topic, queue.queue_id):
            return bound.from_ms, bound.until_ms
    return None, None


def offset_at(queue: Queue, log: LogExtent, timestamp_ms: int) -> int:
    """The queue offset of the first message stored at or after a time, as RocketMQ 5 finds it; the end without one."""
    files = SegmentFiles(log.commitlog, log.segment_bytes)
    entries = files_of(ConsumeQueue.open(queue.directory), queue.end)
    if queue.end <= queue.first:
        return queue.end
    asked = Log(log.min_physical_offset, lambda offset, _size: stored_ms(files, offset) or 0)
    return max(queue.first, offset_by_entries(entries, queue.first, timestamp_ms, asked))


def pruned_by_time(log: LogExtent, stored: Sequence[StoredBounds]) -> LogExtent:
    """The part of the log in whose segments records of that time are, when one time is asked for of all queues.

    Records lie in the order of their times, unless the broker's clock was put back.
    """
    whole = next((bound for bound in stored if bound.topic is None), None)
    if whole is None or log.max_physical_offset <= log.min_physical_offset:
        return log
    files = SegmentFiles(log.commitlog, log.segment_bytes)
    first = files.base_of(log.min_physical_offset)
    bases = range(first, log.max_physical_offset, log.segment_bytes)
    low, high = log.min_physical_offset, log.max_physical_offset

    def begins_ms(base: int) -> int:
        return stored_ms(files, max(base, low)) or 0

    if whole.from_ms is not None:
        before = bisect.bisect_left(bases, whole.from_ms, key=begins_ms)
        start = max(low, bases[max(0, before - 1)])
    else:
        start = low
    if whole.until_ms is not None:
        behind = bisect.bisect_left(bases, whole.until_ms, key=begins_ms)
        high = max(start, min(high, bases[behind] if behind < len(bases) else high))
    reput = min(max(log.reput_from_offset, start), high)
    return replace(log, min_physical_offset=start, reput_from_offset=reput, max_physical_offset=high)
