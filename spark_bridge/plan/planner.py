"""One read's plan: from options, over all of its stores, to splits under leases."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple

from spark_bridge.options.ranges import UNLIMITED, Range, Ranges
from spark_bridge.options.read import ReadOptions
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan import inventory
from spark_bridge.plan.at_snapshot import bounded_log, refuse_other_queues, topics_then
from spark_bridge.plan.bounds import BoundsOfQueues, offset_at, pruned_by_time, stored_bounds
from spark_bridge.plan.collection import planned_in_peace
from spark_bridge.plan.key_plan import plan_by_keys
from spark_bridge.plan.log_times import LogTimes
from spark_bridge.plan.names import refuse_missing
from spark_bridge.plan.stores import StoreAt, resolve_stores
from spark_bridge.records.reader import open_window
from spark_bridge.records.walk import walked
from spark_bridge.split.apart import apart
from spark_bridge.split.leases import hold_log, hold_plan
from spark_bridge.split.splits import (
    Beside,
    Cuts,
    Extent,
    LogExtent,
    Queue,
    Selection,
    Split,
    bounded_list,
    plan,
    split_bytes_of,
)
from store.errors import CorruptRecord, StoreError
from store.message.topics import is_lmq
from store.names import BATCH_QUEUES
from store.upkeep.leases import Lease

# What of a log and of its queues a read has to look at because of ranges: never less than the messages inside of them.
#
# Messages lie in the order of their times unless a broker's clock was put back, or another broker's, which is behind,
# went on with the log. So times are looked for with `CLOCK_SLACK_MS` to spare at both ends; the records are asked for
# their own times. A time that cannot be read cuts nothing.
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


SPLITS_PER_CPU = 2  # a Python task costs about 40 ms, so few; two, so that a slow one does not leave a CPU idle


ByRange = Callable[[LogExtent], Sequence[Extent]]


def plan_read(options: ReadOptions, by_range: ByRange | None = None) -> list[Split]:
    """The splits of a batch read, planned against each log's end as it is now.

    `by_range` tells parts of a log that are rather looked through than read queue by queue. Raises what options, stores
    and recovery find wrong.
    """
    return plan_under_leases(options, by_range)[0]


@planned_in_peace
def plan_under_leases(options: ReadOptions, by_range: ByRange | None = None) -> tuple[list[Split], list[Lease]]:
    """The same, with the leases that hold what was planned: for `leaseSeconds`, or until who plans releases them."""
    with ExitStack() as given_back:  # whatever fails, of whichever store
        logs = []
        for store in stores_of(options):
            log, lease = _leased(store, options)
            if lease is not None:
                given_back.callback(lease.release)
            logs.append((store, log, lease))
        splits: list[Split] = []
        for (_, _, lease), part in zip(logs, _parts(options, [one[:2] for one in logs]), strict=True):
            splits = bounded_list(splits, hold_plan(lease, _planned(part, options, by_range)))
        given_back.pop_all()
    return splits, [lease for _, _, lease in logs if lease is not None]


@planned_in_peace
def planned_parts(options: ReadOptions) -> list[tuple[StorePart, list[Split]]]:
    """Return what `plan_read` would plan now of each store, to be looked at: nothing is held for it.

    Raises what `plan_read` raises.
    """
    logs = [(store, _find_extent(store, options)) for store in stores_of(options)]
    return [(part, _planned(part, options)) for part in _parts(options, logs)]


class StorePart(NamedTuple):
    """One store's part of a read: what is wanted of it, in about how many splits."""

    store: StoreAt
    log: LogExtent
    selection: Selection
    partitions: int


def stores_of(options: ReadOptions) -> list[StoreAt]:
    """The stores that a read is about. Raises what resolving them and the names in them raises."""
    stores = resolve_stores(options)
    refuse_missing(options, stores)
    brokers = options.where.brokers
    return [at for at in stores if brokers is None or at.broker_name in brokers]


def _parts(options: ReadOptions, logs: Sequence[tuple[StoreAt, LogExtent]]) -> Iterator[StorePart]:
    now_ms = time.time_ns() // 1_000_000
    ranges = options.where.ranges_at(now_ms)
    sizes = [log.max_physical_offset - log.min_physical_offset for _, log in logs]
    partitions = options.partitions_min or SPLITS_PER_CPU * (os.cpu_count() or 1)
    for (store, log), size in zip(logs, sizes, strict=True):
        share = max(1, -(-partitions * size // max(1, sum(sizes))))
        selection = inventory.selection_of(options, store.broker_name)
        stored = stored_bounds(options, store.broker_name, now_ms)
        yield StorePart(store, log, replace(selection, stored=stored, ranges=ranges), share)


def _planned(part: StorePart, options: ReadOptions, by_range: ByRange | None = None) -> list[Split]:
    extents = by_range(part.log) if by_range is not None and part.selection.keys is None else ()
    return plan_store(part.store, part.log, options, part.selection, part.partitions, extents)


def _find_extent(store: StoreAt, options: ReadOptions) -> LogExtent:
    confirmed, beyond_rot = options.only_confirmed, options.rows.permissive
    whole = inventory.find_extent(store.root, store.broker_name, only_confirmed=confirmed, beyond_rot=beyond_rot)
    return bounded_log(store.root, whole, options)


def _leased(store: StoreAt, options: ReadOptions) -> tuple[LogExtent, Lease | None]:
    """The log's ends, held: found again under the lease, because retention may have been at work before it."""
    log = _find_extent(store, options)
    lease = hold_log(store.root, log, options.lease_ms)
    if lease is None:
        return log, None
    try:
        return _find_extent(store, options), lease
    except BaseException:
        lease.release()
        raise


def plan_store(
    store: StoreAt,
    log: LogExtent,
    options: ReadOptions,
    selection: Selection,
    partitions: int,
    by_range: Sequence[Extent] = (),
) -> list[Split]:
    """The splits of one store; the extents `by_range` are not read queue by queue if much of them is wanted."""
    if selection.ranges != UNLIMITED:
        selection = replace(selection, ranges=cut_by_time(log, selection.ranges))
    tail = selection
    if selection.topic_pattern is not None or options.topics_admitted:
        known = inventory.topics_of(store.root, selection) | topics_then(store.root, options, selection)
        selection = replace(selection, topics=known, topic_pattern=None)
    elif selection.hides_system and not inventory.has_system_queues(store.root):
        selection = replace(selection, system_topics=True)
    if selection.topics is None and selection.stored:
        log = pruned_by_time(log, selection.stored)
    if selection.topics is not None:
        _refuse_contradictions(selection)
    with LogTimes(log) as times:
        bounds = BoundsOfQueues(options, selection, times)
        look = bounds.look if options.snapshot is None else None
        queues, scanned = inventory.find_queues(store.root, log, selection, look)
        if selection.topics is not None and look is None:
            refuse_other_queues(store.root, log, options, queues, selection)
            for queue in queues:
                bounds.look(queue)
    if selection.topics is not None:
        selection, beyond = bounds.narrowed()
        tail = replace(tail, bounds=beyond)
        if selection.ranges != UNLIMITED:
            with LogTimes(log) as times:
                queues = [narrowed(queue, times, selection.ranges) for queue in queues]
    if selection.keys is not None:
        topics = inventory.topics_of(store.root, selection) if selection.topics is None else selection.topics
        if not any(map(is_lmq, topics)) and not inventory.topics_in(store.root, BATCH_QUEUES, topics):
            split_bytes = options.split_bytes or split_bytes_of(log, selection, partitions)
            return plan_by_keys(store.root, log, topics, tail, split_bytes)
    cuts = Cuts(options.partitions_min is None, options.partition_records_max, options.partition_bytes_max)
    if cuts.records_max is not None:
        cuts = replace(cuts, offsets=tuple(bounded_list(_record_cuts(log, cuts.records_max, options.rows.permissive))))
    wanted = () if selection.topics is None else by_range
    left, inside, outside = apart(log, queues, selection, wanted)
    beside = Beside(tail, inside, outside)
    return plan(log, left, scanned, selection, options.split_bytes, partitions, cuts, beside)


def _refuse_contradictions(selection: Selection) -> None:
    """Bounds that contradict themselves are an error, whether the queue has any message or none."""
    for topic, queue_id, first, end in selection.bounds:
        if end is not None and end < first:
            what = f"queue {queue_id} of topic {topic!r}"
            raise InvalidOption(f"endingOffsets: {what} would end at {end}, before it starts at {first}")


def _record_cuts(log: LogExtent, records_max: int, is_permissive: bool) -> Iterator[int]:
    """Record starts with `records_max` records between each and the next; found by a look through the log."""
    count = 0
    for base, start, end in _segments(log):
        window = open_window(log, base)
        try:
            for records in walked(window, start - base, start - base, end - base):
                for at in range(-count % records_max, len(records), records_max):
                    if count + at:
                        yield base + int(records.starts[at])
                count += len(records)
        except CorruptRecord:
            if not is_permissive:
                raise


def _segments(log: LogExtent) -> Sequence[tuple[int, int, int]]:
    """(base, start, end) of the log's part in each segment."""
    parts = []
    position = log.min_physical_offset
    while position < log.max_physical_offset:
        base = position - position % log.segment_bytes
        end = min(base + log.segment_bytes, log.max_physical_offset)
        parts.append((base, position, end))
        position = end
    return parts
