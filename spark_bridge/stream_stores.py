"""The stores of one streaming query, on the driver: how far their queues reach, and the leases on what is not read yet.

A lease is taken where a broker runs, from the first message that the query has not committed; retention waits for it
(see store.leases). A store that lies where we may not write is read without one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from spark_bridge.stream_offsets import Bounds, Offsets, QueueKey
from spark_bridge.stream_tail import QueueTail, StoreTail, StoreView
from store import leases
from store.leases import Lease

log = logging.getLogger("slipstream.spark")

LEASE_TTL_MS = 3_600_000  # a dead process's lease ends with it; this is for one that hangs
LEASE_MOVES_S = 5.0
POLL_S = 0.02


class StoreNotReady(RuntimeError):
    """A store that cannot say yet how far its queues reach."""

    code = "STORE_NOT_READY"

    def __init__(self, root: str, seconds: float) -> None:
        super().__init__(
            f"{root}: for {seconds:.0f} s no broker ran there, and the last one was not stopped in order; start its"
            " broker, which recovers the store, and start the query again"
        )


class StreamStores:
    """Some stores by their names in offsets."""

    def __init__(self, roots: Mapping[str, str], selects: Callable[[str, int], bool], confirmed_only: bool) -> None:
        self.tails = {name: StoreTail(root, selects, confirmed_only) for name, root in roots.items()}
        self.views: dict[str, StoreView] = {}
        self._leases: dict[str, Lease] = {}
        self._moved: dict[str, float] = {}

    def look(self) -> Bounds:
        """What there is of every queue now; of a store that cannot say, nothing."""
        looked = {name: tail.look() for name, tail in self.tails.items()}
        self.views = {name: view for name, view in looked.items() if view is not None}
        return {
            QueueKey(name, topic, queue_id): (tail.first, tail.end)
            for name, view in self.views.items()
            for (topic, queue_id), tail in view.queues.items()
        }

    def await_all(self, seconds: float) -> Bounds:
        """As `look`, once every store can say. Raises StoreNotReady."""
        return self.await_until(lambda _bounds: self._silent() is None, seconds)

    def await_until(self, met: Callable[[Bounds], bool], seconds: float) -> Bounds:
        """As `look`, once that is met, or when the time is over. Raises StoreNotReady."""
        deadline = time.monotonic() + seconds
        while not met(bounds := self.look()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        silent = self._silent()
        if silent is not None:
            raise StoreNotReady(silent, seconds)
        return bounds

    def _silent(self) -> str | None:
        return next((tail.root for name, tail in self.tails.items() if name not in self.views), None)

    @property
    def judged(self) -> set[str]:
        """The stores of which it is certain that what is missing is lost."""
        return {name for name, view in self.views.items() if view.judged}

    def tail_of(self, key: QueueKey) -> QueueTail | None:
        """The queue, if it is there."""
        view = self.views.get(key.store)
        return None if view is None else view.queues.get((key.topic, key.queue_id))

    def hold(self, done: Offsets) -> None:
        """Keep retention from what lies behind these offsets."""
        now = time.monotonic()
        for name, view in self.views.items():
            if not self.tails[name].is_served or now - self._moved.get(name, -LEASE_MOVES_S) < LEASE_MOVES_S:
                continue
            self._moved[name] = now
            try:
                self._hold(name, self._lowest(name, view, done))
            except OSError as error:
                root = self.tails[name].root
                log.warning("%s: no lease (%s): retention may delete what is not read yet", root, error)

    def _hold(self, name: str, low: int) -> None:
        lease = self._leases.get(name)
        if lease is None:
            self._leases[name] = leases.acquire(self.tails[name].root, low, LEASE_TTL_MS)
        else:
            lease.renew(low)

    def _lowest(self, name: str, view: StoreView, done: Offsets) -> int:
        """The first offset of the log that is still to be read."""
        low = view.extent.reput_from_offset
        for (topic, queue_id), tail in view.queues.items():
            unread = max(tail.first, done.get(QueueKey(name, topic, queue_id), 0))
            if unread < tail.end:
                low = min(low, max(view.extent.min_physical_offset, tail.physical_offset(unread)))
        return low

    def close(self) -> None:
        """Give the leases back."""
        for lease in self._leases.values():
            lease.release()
        self._leases.clear()
        for tail in self.tails.values():
            tail.close()
