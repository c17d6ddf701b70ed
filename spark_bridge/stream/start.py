"""Where a streaming query starts that has no checkpoint: at an end of each queue, at offsets, or at a time.

There may be very many queues. A time is asked of each when it is looked at first, while its file is open: to open all
of them again took half as long as all else that a first batch needs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from spark_bridge.options.queues import EARLIEST, LATEST
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan.at_snapshot import snapshot_of
from spark_bridge.plan.bounds import offset_at, stored_bounds
from spark_bridge.plan.log_times import LogTimes
from spark_bridge.split.splits import LogExtent, Queue
from spark_bridge.split.stored import StoredByQueue
from spark_bridge.stream.offsets import Bounds, Offsets, QueueKey
from spark_bridge.stream.tail import AtFirst, Begin, QueueTail, StoreView, Tail
from store.upkeep import snapshots
from store.upkeep.snapshots import Snapshot, SnapshotGone

if TYPE_CHECKING:
    from spark_bridge.stream.options import StreamOptions


class _Beginning(NamedTuple):
    """Offset at which a time begins in a queue that had messages between these bounds."""

    bounds: tuple[int, int]
    offset: int


class OpenStores(Protocol):
    """The stores of a query at one look."""

    @property
    def views(self) -> Mapping[str, StoreView]:
        """What each store has, by store."""

    @property
    def tails(self) -> Mapping[str, Tail]:
        """What is followed of each store, by store."""

    def tail_of(self, key: QueueKey) -> QueueTail | None:
        """Return the followed end of a queue; None if the queue is unknown."""


class Starts:
    """The beginnings of one query."""

    def __init__(self, options: StreamOptions) -> None:
        self._options, self._now_ms = options, time.time_ns() // 1_000_000
        self._begins: dict[str, dict[tuple[str, int], _Beginning]] = {}
        self._bounds: dict[str, StoredByQueue] = {}

    def at_first(self, store: str, broker_name: str) -> AtFirst | None:
        """Return what to ask the queues of a store at the first look; nothing where no time is given."""
        return partial(self._asking, store, broker_name) if self._options.read.starting_moments else None

    @contextmanager
    def _asking(self, store: str, broker_name: str, log: LogExtent) -> Iterator[Begin]:
        begins = self._begins[store] = {}
        stored = self._stored(broker_name)
        with LogTimes(log) as times:

            def begin(queue: Queue) -> int:
                from_ms, _ = stored.times_of(queue.topic, queue.queue_id)
                if from_ms is None:
                    return queue.first
                offset = offset_at(queue, times, from_ms)
                begins[queue.topic, queue.queue_id] = _Beginning((queue.first, queue.end), offset)
                return offset

            yield begin

    def offsets(self, stores: OpenStores, there: Bounds) -> Offsets:
        """The first offset to read of every queue.

        Raises InvalidOption for a time after all messages, if that is asked; as `snapshot_of` for a snapshot.
        """
        if self._options.read.starting_snapshot is not None:
            return _behind_snapshot(self._options.read.starting_snapshot, stores, there)
        offsets: Offsets = {}
        for store in stores.views:
            offsets.update(self._of_store(store, stores, there))
        return {key: offsets[key] for key in there}

    def _of_store(self, store: str, stores: OpenStores, there: Bounds) -> Iterator[tuple[QueueKey, int]]:
        broker = stores.tails[store].broker_name
        stored, begins = self._stored(broker), self._begins.get(store, {})
        named = {item.queue[:2]: item.offset for item in self._options.starting if item.queue.is_of(broker)}
        others = LATEST if self._options.starts_latest else EARLIEST
        with LogTimes(stores.views[store].extent) as times:
            for key, bounds in there.items():
                if key.store != store:
                    continue
                from_ms, _ = stored.times_of(key.topic, key.queue_id)
                if from_ms is None:
                    offset = named.get((key.topic, key.queue_id), others)
                    yield key, bounds[0] if offset == EARLIEST else bounds[1] if offset == LATEST else offset
                    continue
                known = begins.get((key.topic, key.queue_id))
                if known is None or known.bounds != bounds:  # more has come since
                    known = _Beginning(bounds, _offset_at(key, bounds, stores, times, from_ms))
                self._refuse_too_late(key, known, from_ms)
                yield key, known.offset

    def _stored(self, broker_name: str) -> StoredByQueue:
        """The times asked of that broker's queues."""
        if broker_name not in self._bounds:
            self._bounds[broker_name] = StoredByQueue(stored_bounds(self._options.read, broker_name, self._now_ms))
        return self._bounds[broker_name]

    def _refuse_too_late(self, key: QueueKey, begin: _Beginning, from_ms: int) -> None:
        if self._options.read.fail_when_too_late and begin.offset >= begin.bounds[1]:
            what = f"{key} has no message stored at or after {from_ms} ms"
            raise InvalidOption(f"startingOffsetsByTimestampStrategy=error: {what}")


def _offset_at(key: QueueKey, bounds: tuple[int, int], stores: OpenStores, times: LogTimes, from_ms: int) -> int:
    tail = stores.tail_of(key)
    assert tail is not None, "it is among the bounds"
    with tail.seen() as entries:
        return offset_at(Queue(tail.directory, key.topic, key.queue_id, entries, *bounds), times, from_ms)


def _behind_snapshot(name: str, stores: OpenStores, there: Bounds) -> Offsets:
    """Return where the queues ended at the snapshot; those that came later, from their beginning."""
    then = {store: snapshot_of(stores.tails[store].root, name, view.extent) for store, view in stores.views.items()}
    return {key: _end_then(key, then[key.store], stores, bounds) for key, bounds in there.items()}


def _end_then(key: QueueKey, one: Snapshot, stores: OpenStores, bounds: tuple[int, int]) -> int:
    end = one.offsets.get(key.topic, {}).get(key.queue_id)
    if end is None:
        return bounds[0]
    tail = stores.tail_of(key)
    assert tail is not None, "it is among the bounds"
    is_other = bounds[0] < end <= bounds[1] and tail.physical_offset(end - 1) >= one.end_offset
    if end > bounds[1] or is_other:
        what = f"{key} ended at {end}, and now ends at {bounds[1]}: the topic was created anew"
        raise SnapshotGone(str(snapshots.path_of(stores.tails[key.store].root, one.name)), what)
    return end
