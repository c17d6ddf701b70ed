"""One read's plan: from options, over all of its stores, to splits under leases."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from spark_bridge.options.read import ReadOptions
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan import inventory
from spark_bridge.plan.bounds import bounded, pruned_by_time, stored_bounds
from spark_bridge.plan.key_plan import plan_by_keys
from spark_bridge.plan.names import refuse_missing
from spark_bridge.plan.stores import StoreAt, resolve_stores
from spark_bridge.records.reader import open_window
from spark_bridge.records.scan import record_starts
from spark_bridge.split.leases import hold_log, hold_plan
from spark_bridge.split.splits import Cuts, LogExtent, Selection, Split, bounded_list, plan
from store.errors import CorruptRecord
from store.message.topics import is_lmq
from store.queues.batch_consume_queue import has_batch_queues
from store.upkeep.leases import Lease

SPLITS_PER_CPU = 2  # a Python task costs about 40 ms, so few; two, so that a slow one does not leave a CPU idle


def plan_read(options: ReadOptions) -> list[Split]:
    """The splits of a batch read, planned against each log's end as it is now.

    Raises what options, stores and recovery find wrong.
    """
    now_ms = time.time_ns() // 1_000_000
    where = options.where
    stores = resolve_stores(options)
    refuse_missing(options, stores)
    wanted = [at for at in stores if where.brokers is None or at.broker_name in where.brokers]
    logs = [(store, *_leased(store, options)) for store in wanted]
    sizes = [log.max_physical_offset - log.min_physical_offset for _, log, _ in logs]
    partitions = options.partitions_min or SPLITS_PER_CPU * (os.cpu_count() or 1)
    splits: list[Split] = []
    for (store, log, lease), size in zip(logs, sizes, strict=True):
        share = max(1, -(-partitions * size // max(1, sum(sizes))))
        selection = inventory.selection_of(options, store.broker_name)
        selection = replace(selection, stored=stored_bounds(options, store.broker_name, now_ms))
        try:
            splits = bounded_list(splits, hold_plan(lease, plan_store(store, log, options, selection, share)))
        except BaseException:
            if lease is not None:
                lease.release()
            raise
    return splits


def _leased(store: StoreAt, options: ReadOptions) -> tuple[LogExtent, Lease | None]:
    """The log's ends, held: found again under the lease, because retention may have been at work before it."""
    root, name, confirmed = store.root, store.broker_name, options.only_confirmed
    find = partial(inventory.find_extent, root, name, only_confirmed=confirmed, beyond_rot=options.rows.permissive)
    log = find()
    lease = hold_log(root, log, options.lease_ms)
    return (log if lease is None else find()), lease


def plan_store(
    store: StoreAt, log: LogExtent, options: ReadOptions, selection: Selection, partitions: int
) -> list[Split]:
    """The splits of one store."""
    tail = selection
    if selection.topic_pattern is not None:
        known = inventory.topics_of(store.root, selection)
        selection = replace(selection, topics=known, topic_pattern=None)
    elif selection.hides_system and not inventory.has_system_queues(store.root):
        selection = replace(selection, system_topics=True)
    if selection.topics is None and selection.stored:
        log = pruned_by_time(log, selection.stored)
    queues, scanned = inventory.find_queues(store.root, log, selection)
    if selection.topics is not None:
        _refuse_contradictions(selection)
        selection = bounded(options, log, queues, selection)
        tail = replace(tail, bounds=selection.bounds)
    if selection.keys is not None:
        topics = inventory.topics_of(store.root, selection) if selection.topics is None else selection.topics
        if not any(is_lmq(topic) or has_batch_queues(store.root, topic) for topic in topics):
            return plan_by_keys(store.root, log, topics, tail, options.split_bytes)
    cuts = Cuts(options.partitions_min is None, options.partition_records_max, options.partition_bytes_max)
    if cuts.records_max is not None:
        cuts = replace(cuts, offsets=tuple(bounded_list(_record_cuts(log, cuts.records_max, options.rows.permissive))))
    return plan(log, queues, scanned, selection, options.split_bytes, partitions, cuts, tail)


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
            for positions in record_starts(window, start - base, start - base, end - base):
                for at in range(-count % records_max, len(positions), records_max):
                    if count + at:
                        yield base + int(positions[at])
                count += len(positions)
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
