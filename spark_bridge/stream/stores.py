"""The stores of one streaming query, on the driver: how far their queues reach, and the leases on what is not read yet.

A lease is taken where a broker runs, from the first message that the query has not committed; retention waits for it
(see store.upkeep.leases). A store that lies where we may not write is read without one.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from spark_bridge.options.queues import EARLIEST, LATEST
from spark_bridge.options.read import ReadOptions
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan.at_snapshot import snapshot_of
from spark_bridge.plan.bounds import offset_at, stored_bounds
from spark_bridge.plan.inventory import selection_of
from spark_bridge.plan.log_times import LogTimes
from spark_bridge.plan.names import refuse_missing, refuse_unstreamable
from spark_bridge.plan.stores import GLOB_MARKS, StoreAt, resolve_stores
from spark_bridge.split.leases import without_lease
from spark_bridge.split.splits import LogExtent, Queue, Selection
from spark_bridge.split.stored import StoredByQueue
from spark_bridge.stream.limits import Limits, Span, cut_to_bytes, cut_to_rows
from spark_bridge.stream.offsets import ONLY_STORE, Bounds, Offsets, QueueKey, first_unread, share
from spark_bridge.stream.plan import Part
from spark_bridge.stream.tail import AtFirst, Begin, QueueTail, StoreTail, StoreView, Tail
from store.upkeep import leases, snapshots
from store.upkeep.leases import Lease
from store.upkeep.snapshots import Snapshot, SnapshotGone

if TYPE_CHECKING:
    from spark_bridge.stream.options import StreamOptions


# Where a streaming query starts that has no checkpoint: at an end of each queue, at offsets, or at a time.
#
# There may be very many queues. A time is asked of each when it is looked at first, while its file is open: to open all
# of them again took half as long as all else that a first batch needs.
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


log = logging.getLogger("slipstream.spark")

LEASE_TTL_MS = 3_600_000  # a dead process's lease ends with it; this is for one that hangs
LEASE_MOVES_S = 5.0
POLL_S = 0.02
RESOLVE_S = 10.0
DISPATCH_S = 10.0  # a slave's log may end in half a record, which nobody dispatches


class StoreNotReady(RuntimeError):
    """Raised when a store does not know the ends of its queues yet.

    Next: `slipstream broker -c FILE`, which recovers the store; then start the query again.
    """

    code = "STORE_NOT_READY"

    def __init__(self, root: str, seconds: float) -> None:
        super().__init__(
            f"{root}: for {seconds:.0f} s no broker ran there, and the last one was not stopped in order; start its"
            " broker, which recovers the store, and start the query again"
        )


class Unread(NamedTuple):
    """The entries [start, end) of one queue that a batch may take."""

    key: QueueKey
    start: int
    end: int


class StreamStores:
    """The stores of one query by their names in offsets; where several may be, new ones are found while it runs."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.by_store = _may_be_several(options)
        self.tails: dict[str, Tail] = {}
        self.views: dict[str, StoreView] = {}
        self._starts: Starts | None = None
        self._leases: dict[str, Lease] = {}
        self._moved: dict[str, float] = {}
        self._resolved = float("-inf")
        self._last_warning = ""

    def _resolve(self) -> None:
        """Find the stores, again every now and then. Raises as `resolve_stores`, the first time."""
        if self.tails and (not self.by_store or time.monotonic() - self._resolved < RESOLVE_S):
            return
        self._resolved = time.monotonic()
        try:
            stores = resolve_stores(self.options)
        except (InvalidOption, OSError) as error:
            if not self.tails:
                raise
            if str(error) != self._last_warning:
                self._last_warning = str(error)
                log.warning("stores cannot be listed, will retry: %s", error)
            return
        for store in stores:
            name = store.broker_name if self.by_store else ONLY_STORE
            known = self.tails.get(name)
            if known is None or known.root != store.root:
                self._drop(name)
                self.tails[name] = self._tail_at(name, store)

    def _tail_at(self, name: str, store: StoreAt) -> StoreTail:
        return StoreTail(
            store.root,
            selection_of(self.options, store.broker_name),
            store.broker_name,
            confirmed_only=self.options.only_confirmed,
            beyond_rot=self.options.rows.permissive,
            at_first=None if self._starts is None else self._starts.at_first(name, store.broker_name),
        )

    def _drop(self, name: str) -> None:
        """Let go of a store, whose name is another's now."""
        lease, tail = self._leases.pop(name, None), self.tails.pop(name, None)
        if lease is not None:
            lease.release()
        if tail is not None:
            tail.close()

    def look(self) -> Bounds:
        """Return what there is of every queue now; of a store that cannot say, nothing."""
        self._resolve()
        looked = {name: tail.look() for name, tail in self.tails.items()}
        self.views = {name: view for name, view in looked.items() if view is not None}
        return {
            QueueKey(name, topic, queue_id): (tail.first, tail.end)
            for name, view in self.views.items()
            for (topic, queue_id), tail in view.queues.items()
        }

    def begin(self, options: StreamOptions, seconds: float) -> Bounds:
        """Await all stores like `await_all`, for a query without a checkpoint, which then asks where it `starts`."""
        self._starts = Starts(options)
        return self.await_all(seconds)

    def await_all(self, seconds: float) -> Bounds:
        """Return what `look` returns, once every store can answer. Raises StoreNotReady."""
        return self.await_until(lambda _bounds: self._silent() is None, seconds)

    def await_until(self, met: Callable[[Bounds], bool], seconds: float) -> Bounds:
        """Return what `look` returns, once the condition is met or the time is over. Raises StoreNotReady."""
        deadline = time.monotonic() + seconds
        while not met(bounds := self.look()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        silent = self._silent()
        if silent is not None:
            raise StoreNotReady(silent, seconds)
        return bounds

    def await_dispatched(self, seconds: float) -> Bounds:
        """Await all stores like `await_all`, then until what their logs held by then is queued, at most DISPATCH_S."""
        bounds = self.await_all(seconds)
        if self.options.only_confirmed:
            return bounds
        served = {name: view for name, view in self.views.items() if self.tails[name].is_served}
        ends = {name: view.extent.max_physical_offset for name, view in served.items()}
        return self.await_until(lambda _bounds: self._has_dispatched(ends), DISPATCH_S)

    def _has_dispatched(self, ends: Mapping[str, int]) -> bool:
        return all(view.extent.reput_from_offset >= ends.get(name, 0) for name, view in self.views.items())

    def _silent(self) -> str | None:
        return next((tail.root for name, tail in self.tails.items() if name not in self.views), None)

    @property
    def places(self) -> list[StoreAt]:
        """Return the stores with their brokers' names."""
        return [StoreAt(tail.root, tail.broker_name) for tail in self.tails.values()]

    @property
    def judged(self) -> set[str]:
        """The stores of which it is certain that what is missing is lost."""
        return {name for name, view in self.views.items() if view.judged}

    def tail_of(self, key: QueueKey) -> QueueTail | None:
        """The queue, if it is there."""
        view = self.views.get(key.store)
        return None if view is None else view.queues.get((key.topic, key.queue_id))

    def starts(self, options: StreamOptions, there: Bounds) -> Offsets:
        """Return where a query without a checkpoint begins. Raises as `Starts.offsets`."""
        starts, self._starts = self._starts or Starts(options), None
        return starts.offsets(self, there)

    def refuse_missing(self, read: Iterable[str]) -> None:
        """Raise UnknownTopic for a name that no store has, except topics that were read already."""
        refuse_missing(self.options, self.places, read)
        refuse_unstreamable(self.options, self.places)

    def cut(self, spans: Sequence[Unread], rows_max: int, bytes_max: int | None) -> list[int]:
        """The ends of spans of one store such that they keep to the limits: what comes first in the log."""
        cut = [Span(self._tail(key), start, end) for key, start, end in spans]
        ends = cut_to_rows(cut, rows_max)
        if bytes_max is None or not spans:
            return ends
        cut = [span._replace(end=until) for span, until in zip(cut, ends, strict=True)]
        return cut_to_bytes(cut, bytes_max) if bytes_max else [span.start for span in cut]

    def limited(self, done: Offsets, end: Offsets, there: Bounds, limits: Limits) -> Offsets:
        """The end of a batch within its limits, each store's part of them."""
        if limits.rows_max is None and limits.bytes_max is None:
            return end
        keys = [key for key in end if key in there and first_unread(key, done, there) < end[key]]
        backlogs = dict.fromkeys(self.tails, 0)
        for key in keys:
            backlogs[key.store] += end[key] - first_unread(key, done, there)
        rows = share(limits.rows_max, backlogs) if limits.rows_max is not None else backlogs
        size = share(limits.bytes_max, backlogs) if limits.bytes_max is not None else None
        limited = dict(end)
        for store in backlogs:
            own = [key for key in keys if key.store == store]
            spans = [Unread(key, first_unread(key, done, there), end[key]) for key in own]
            ends = self.cut(spans, rows[store], None if size is None else size[store])
            limited.update(zip(own, ends, strict=True))
        return limited

    def parts(self, spans: Sequence[Unread], wanted: Selection) -> list[Part]:
        """The same spans for a plan."""
        return [
            Part(self.views[key.store].extent, self.directory(key), key.topic, key.queue_id, first, last, size, wanted)
            for (key, first, last), size in zip(spans, self.entry_bytes(spans), strict=True)
        ]

    def entry_bytes(self, spans: Sequence[Unread]) -> list[int]:
        """About how long the records of each span are."""
        return [self._tail(key).mean_bytes(start, end) for key, start, end in spans]

    def directory(self, key: QueueKey) -> str:
        """Return where the queue lies on hosts that have the store."""
        return self._tail(key).directory

    def _tail(self, key: QueueKey) -> QueueTail:
        tail = self.tail_of(key)
        assert tail is not None, "only queues that are there are planned"
        return tail

    def hold(self, done: Offsets) -> None:
        """Keep retention from what lies behind these offsets."""
        now = time.monotonic()
        for name, view in self.views.items():
            if not self.tails[name].is_served or now - self._moved.get(name, -LEASE_MOVES_S) < LEASE_MOVES_S:
                continue
            self._moved[name] = now
            try:
                self._hold(name, self.lowest(name, view, done))
            except OSError as error:
                log.warning("%s", without_lease(self.tails[name].root, error))

    def _hold(self, name: str, low: int) -> None:
        lease = self._leases.get(name)
        if lease is None:
            self._leases[name] = leases.acquire(self.tails[name].root, low, LEASE_TTL_MS)
        else:
            lease.renew(low)

    def lowest(self, name: str, view: StoreView, done: Offsets) -> int:
        """The first offset of the log that is still to be read."""
        low = view.extent.reput_from_offset
        for (topic, queue_id), tail in view.queues.items():
            unread = max(tail.first, done.get(QueueKey(name, topic, queue_id), 0))
            if unread < tail.end:
                low = min(low, max(view.extent.min_physical_offset, tail.physical_offset(unread)))
        return low

    def close(self) -> None:
        """Close all stores, and release their leases."""
        for name in list(self.tails):
            self._drop(name)


def _may_be_several(options: ReadOptions) -> bool:
    """Whether offsets name their stores: whatever number of them there happens to be now."""
    if len(options.paths) != 1:
        return True
    path = options.paths[0]
    return not os.path.isdir(path) and ("," in path or bool(GLOB_MARKS & set(path)))
