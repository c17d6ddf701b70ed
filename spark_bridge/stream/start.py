"""Where a streaming query starts that has no checkpoint: at an end of each queue, at offsets, or at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from spark_bridge.options.queues import EARLIEST, LATEST
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan.at_snapshot import snapshot_of
from spark_bridge.plan.bounds import offset_at, stored_bounds
from spark_bridge.plan.log_times import LogTimes
from spark_bridge.split.splits import Queue
from spark_bridge.split.stored import StoredByQueue
from spark_bridge.stream.offsets import Bounds, Offsets, QueueKey
from spark_bridge.stream.tail import QueueTail
from store.upkeep import snapshots
from store.upkeep.snapshots import Snapshot, SnapshotGone

if TYPE_CHECKING:
    from spark_bridge.stream.options import StreamOptions
    from spark_bridge.stream.stores import StreamStores


def starting_offsets(options: StreamOptions, stores: StreamStores, there: Bounds) -> Offsets:
    """The first offset to read of every queue.

    Raises InvalidOption for a time after all messages, if that is asked; as `snapshot_of` for a snapshot.
    """
    now_ms = time.time_ns() // 1_000_000
    if options.read.starting_snapshot is not None:
        return _behind_snapshot(options.read.starting_snapshot, stores, there)
    offsets: Offsets = {}
    for store in stores.views:
        with _Starts(options, stores, store, now_ms) as starts:
            offsets.update((key, starts.first_of(key, bounds)) for key, bounds in there.items() if key.store == store)
    return {key: offsets[key] for key in there}


class _Starts:
    """What the options say of one store's queues, found by queue: there may be very many."""

    def __init__(self, options: StreamOptions, stores: StreamStores, store: str, now_ms: int) -> None:
        broker = stores.tails[store].broker_name
        self._options, self._stores = options, stores
        self._stored = StoredByQueue(stored_bounds(options.read, broker, now_ms))
        self._named = {item.queue[:2]: item.offset for item in options.starting if item.queue.is_of(broker)}
        self._others = LATEST if options.starts_latest else EARLIEST
        self._times = LogTimes(stores.views[store].extent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._times.close()

    def first_of(self, key: QueueKey, bounds: tuple[int, int]) -> int:
        """Where one queue is begun, which has messages between these bounds."""
        from_ms, _ = self._stored.times_of(key.topic, key.queue_id)
        if from_ms is not None:
            return self._at_time(key, bounds, from_ms)
        named = self._named.get((key.topic, key.queue_id), self._others)
        return bounds[0] if named == EARLIEST else bounds[1] if named == LATEST else named

    def _at_time(self, key: QueueKey, bounds: tuple[int, int], from_ms: int) -> int:
        tail = self._stores.tail_of(key)
        assert tail is not None, "it is among the bounds"
        offset = _offset_at(tail, key, bounds, self._times, from_ms)
        if self._options.read.fail_when_too_late and offset >= bounds[1]:
            what = f"{key} has no message stored at or after {from_ms} ms"
            raise InvalidOption(f"startingOffsetsByTimestampStrategy=error: {what}")
        return offset


def _offset_at(tail: QueueTail, key: QueueKey, bounds: tuple[int, int], times: LogTimes, from_ms: int) -> int:
    with tail.seen() as entries:
        return offset_at(Queue(tail.directory, key.topic, key.queue_id, entries, *bounds), times, from_ms)


def _behind_snapshot(name: str, stores: StreamStores, there: Bounds) -> Offsets:
    """Where the queues ended at the snapshot; those that came later, from their beginning."""
    then = {store: snapshot_of(stores.tails[store].root, name, view.extent) for store, view in stores.views.items()}
    return {key: _end_then(key, then[key.store], stores, bounds) for key, bounds in there.items()}


def _end_then(key: QueueKey, one: Snapshot, stores: StreamStores, bounds: tuple[int, int]) -> int:
    end = one.offsets.get(key.topic, {}).get(key.queue_id)
    if end is None:
        return bounds[0]
    tail = stores.tail_of(key)
    assert tail is not None, "it is among the bounds"
    is_other = bounds[0] < end <= bounds[1] and tail.physical_offset(end - 1) >= one.end_offset
    if end > bounds[1] or is_other:
        what = f"{key} ended at {end}, and is another one that ends at {bounds[1]} now: the topic was made anew"
        raise SnapshotGone(str(snapshots.path_of(stores.tails[key.store].root, one.name)), what)
    return end
