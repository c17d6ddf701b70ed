"""Where in its queues a topic was at a time: the first message stored from then on, or the queue's end.

As RocketMQ 5 answers (`searchOffset`, LOWER), but over everything that the log holds: what is not in the queues yet is
looked for in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from spark_bridge.options.ranges import Range, Ranges
from spark_bridge.options.read import ReadOptions
from spark_bridge.plan import inventory
from spark_bridge.plan.bounds import offset_at
from spark_bridge.plan.log_times import LogTimes
from spark_bridge.plan.names import refuse_missing
from spark_bridge.plan.stores import StoreAt, resolve_stores
from spark_bridge.records.columns import Asked
from spark_bridge.records.reader import read_split
from spark_bridge.split.splits import Beside, LogExtent, Queue, Selection, plan
from spark_bridge.tables.rows import queue_rows

PLACE = ("topic", "queueId", "queueOffset")


class OffsetAt(NamedTuple):
    """One queue at a time: `queue_offset` is its end where nothing was stored from then on."""

    broker_name: str
    topic: str
    queue_id: int
    queue_offset: int
    min_offset: int
    max_offset: int


def offsets_at(options: ReadOptions, timestamp_ms: int) -> Iterator[OffsetAt]:
    """Yield the offset of every queue of the topics in the options. Raises what planning a read raises."""
    stores = resolve_stores(options)
    refuse_missing(options, stores)
    for store in stores:
        yield from _of_store(store, options, timestamp_ms)


def _of_store(store: StoreAt, options: ReadOptions, timestamp_ms: int) -> Iterator[OffsetAt]:
    log = inventory.find_extent(store.root, store.broker_name)
    selection = inventory.selection_of(options, store.broker_name)
    first: dict[tuple[str, int], int] = {}
    with LogTimes(log) as times:

        def look(queue: Queue) -> None:
            first[queue.topic, queue.queue_id] = offset_at(queue, times, timestamp_ms)

        queues, scanned = inventory.find_queues(store.root, log, selection, look)
    ends = {(queue.topic, queue.queue_id): queue.end for queue in queues}
    open_ended = {key for key, end in ends.items() if first.get(key, end) < end}
    for key, offset in _in_log(log, scanned, selection, timestamp_ms):
        if key not in open_ended:  # what the queue itself has comes before what is not dispatched yet
            first[key] = offset
            open_ended.add(key)
    for row in queue_rows(store, options):
        key = row.topic, row.queue_id
        offset = first[key] if key in open_ended else row.max_offset
        yield OffsetAt(store.broker_name, *key, max(offset, row.min_offset), row.min_offset, row.max_offset)


def _in_log(
    log: LogExtent, scanned: frozenset[str], selection: Selection, timestamp_ms: int
) -> Iterator[tuple[tuple[str, int], int]]:
    """The first offsets among what queues of the plain kind do not hold: by (topic, queue id), ascending in each."""
    later = replace(selection, ranges=Ranges(stored_ms=Range(timestamp_ms)))
    splits = plan(log, [], scanned, replace(later, topics=scanned), None, 1, beside=Beside(later))
    asked = Asked.of(PLACE)
    first: dict[tuple[str, int], int] = {}
    for split in splits:
        for batch in read_split(split, asked):
            by_queue = pa.Table.from_batches([batch]).group_by(["topic", "queueId"]).aggregate([("queueOffset", "min")])
            for row in by_queue.to_pylist():
                key = row["topic"], row["queueId"]
                first[key] = min(first.get(key, row["queueOffset_min"]), row["queueOffset_min"])
    yield from first.items()
