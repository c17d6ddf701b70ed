"""Where a streaming query starts that has no checkpoint: at an end of each queue, at offsets, or at a time."""

from __future__ import annotations

import time

from spark_bridge.options.queues import EARLIEST, LATEST
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan.bounds import offset_at, stored_bounds
from spark_bridge.split.splits import Queue
from spark_bridge.stream.offsets import Bounds, Offsets, QueueKey
from spark_bridge.stream.options import StreamOptions
from spark_bridge.stream.stores import StreamStores


def starting_offsets(options: StreamOptions, stores: StreamStores, there: Bounds) -> Offsets:
    """The first offset to read of every queue. Raises InvalidOption for a time after all messages, if that is asked."""
    now_ms = time.time_ns() // 1_000_000
    return {key: _first_of(key, options, stores, bounds, now_ms) for key, bounds in there.items()}


def _first_of(key: QueueKey, options: StreamOptions, stores: StreamStores, bounds: tuple[int, int], now_ms: int) -> int:
    broker = stores.tails[key.store].broker_name
    for bound in stored_bounds(options.read, broker, now_ms):
        if bound.topic is None or (bound.topic, bound.queue_id) == (key.topic, key.queue_id):
            return _at_time(key, options, stores, bounds, bound.from_ms or 0)
    named = LATEST if options.starts_latest else EARLIEST
    for item in options.starting:
        if item.queue[:2] == (key.topic, key.queue_id) and item.queue.is_of(broker):
            named = item.offset
    return bounds[0] if named == EARLIEST else bounds[1] if named == LATEST else named


def _at_time(key: QueueKey, options: StreamOptions, stores: StreamStores, bounds: tuple[int, int], from_ms: int) -> int:
    tail, extent = stores.tail_of(key), stores.views[key.store].extent
    assert tail is not None, "it is among the bounds"
    offset = offset_at(Queue(str(tail.directory), key.topic, key.queue_id, tail.queue, *bounds), extent, from_ms)
    if options.read.fail_when_too_late and offset >= bounds[1]:
        what = f"{key} has no message stored at or after {from_ms} ms"
        raise InvalidOption(f"startingOffsetsByTimestampStrategy=error: {what}")
    return offset
