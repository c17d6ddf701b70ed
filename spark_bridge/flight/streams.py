"""The streams that a Flight server has under way: how many there may be, and what ends those that nobody takes.

A stream's next batch is made when gRPC has got rid of the one before, so a slow client costs a thread and a batch or
two, never more; for a few streams at a time it is made while that one is sent. Its lease holds the log for it
meanwhile, renewed from outside, since a stream that waits does nothing.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa

from spark_bridge.flight.connections import Peer
from spark_bridge.flight.errors import ServerStopping, TooManyStreams
from spark_bridge.split.leases import renewed
from store.upkeep.leases import Lease

TURN_WAIT_S = 10.0


class Limits(NamedTuple):
    """The bounds of what a server does at once, and of its wait for a client that takes nothing."""

    streams: int = 128
    streams_of_peer: int = 64  # of one address
    plans: int = 4
    plans_waiting: int = 64
    puts: int = 8
    looks: int = 8  # of drivers of streams
    looks_waiting: int = 256
    ahead: int = 4  # batches made while those before them are sent, of all streams
    connections: int = 1024
    idle_s: float = 120.0


DEFAULT_LIMITS = Limits()


class Turns:
    """So many of a kind at once, and so many that wait for their turn."""

    def __init__(self, what: str, at_once: int, waiting: int) -> None:
        self._what = what
        self.running, self.asking = threading.BoundedSemaphore(at_once), threading.BoundedSemaphore(at_once + waiting)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for a turn, and hold it in the block. Raises TooManyStreams."""
        if not self.asking.acquire(blocking=False):
            raise TooManyStreams(f"as many {self._what} are waited for as this server takes; try again")
        try:
            if not self.running.acquire(timeout=TURN_WAIT_S):
                what = f"no turn for {self._what} came within {TURN_WAIT_S:.0f} s"
                raise TooManyStreams(f"{what}, others take all; try again")
            try:
                yield
            finally:
                self.running.release()
        finally:
            self.asking.release()


class Ahead:
    """Makes batches while those before them are sent: so many at a time, more of them no slow clients hold."""

    def __init__(self, at_once: int) -> None:
        self._threads = ThreadPoolExecutor(at_once, "flight-ahead")
        self._free = threading.BoundedSemaphore(at_once)

    def begun(self, batches: Iterator[pa.RecordBatch]) -> Future[pa.RecordBatch] | None:
        """The next batch in the making; None where as many are held as may be, and behind the end."""
        if not self._free.acquire(blocking=False):
            return None
        try:
            return self._threads.submit(next, batches)
        except RuntimeError:  # the pool is shut down
            self._free.release()
            return None

    def taken(self, batch: Future[pa.RecordBatch]) -> pa.RecordBatch:
        """Return what was begun. Raises what making it raised, StopIteration at the end."""
        try:
            return batch.result()
        finally:
            self._free.release()

    def dropped(self, batch: Future[pa.RecordBatch]) -> None:
        """Give up a batch that nobody takes, and free its place."""
        batch.cancel()
        self._free.release()

    def close(self) -> None:
        """Stop making batches ahead; those not begun are cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class Stream:
    """One ticket's batches on their way: an iterator for Flight, which other threads look at."""

    patience_s: float | None = None  # with its client; None: as with all

    def __init__(self, peer: Peer, sent_as: Callable[[BaseException], BaseException]) -> None:
        self.peer = peer
        self.waits_since: float | None = None  # since when the client has not taken what was made
        self.stopped = False
        self._sent_as = sent_as
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._ahead: Ahead | None = None
        self._begun: Future[pa.RecordBatch] | None = None  # the batch behind the one that is on its way
        self._lease: Lease | None = None
        self._lock = threading.Lock()

    def begin(self, batches: Iterator[pa.RecordBatch], lease: Lease | None, ahead: Ahead | None = None) -> None:
        """Set the batches, the lease that holds the log for them, and the worker that makes one ahead."""
        self._batches, self._lease, self._ahead = batches, lease, ahead

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> pa.RecordBatch:
        self.waits_since = None
        try:
            self.refuse_when_stopped()
            batch = self._next()
        except StopIteration:
            raise
        except BaseException as error:
            raise self._sent_as(error) from None
        self.waits_since = time.monotonic()
        return batch

    def _next(self) -> pa.RecordBatch:
        """The next batch, the one behind it begun if that may be. Raises StopIteration."""
        if self._ahead is None:
            return next(self._batches)
        begun, self._begun = self._begun, None
        batch = next(self._batches) if begun is None else self._ahead.taken(begun)
        self._begun = self._ahead.begun(self._batches)
        return batch

    def refuse_when_stopped(self) -> None:
        """Raise ServerStopping once the stream is stopped."""
        if self.stopped:
            raise ServerStopping("this server ends now; ask another replica, or this one when it is back")

    def idle_s(self, now: float) -> float:
        """Return for how long the client has taken nothing."""
        since = self.waits_since
        return 0.0 if since is None else now - since

    def keep(self) -> None:
        """Renew its lease, if it is time."""
        with self._lock:
            if self._lease is not None:
                renewed(self._lease)

    def end(self) -> None:
        """Release the lease and the batch made ahead."""
        with self._lock:
            lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
        begun, self._begun = self._begun, None
        if begun is not None and self._ahead is not None:
            self._ahead.dropped(begun)
        self._batches = iter(())


class Streams:
    """All streams that the server has under way."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._all: set[Stream] = set()
        self.ahead = Ahead(limits.ahead)

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, stream: Stream) -> None:
        """Count a stream that begins. Raises TooManyStreams."""
        with self._lock:
            of_peer = sum(other.peer.host == stream.peer.host for other in self._all)
            if len(self._all) >= self._limits.streams:
                raise TooManyStreams(f"{len(self._all)} streams are under way, as many as are served; try again")
            if of_peer >= self._limits.streams_of_peer:
                what = f"{of_peer} streams are under way to {stream.peer.host}"
                raise TooManyStreams(f"{what}, as many as one address gets; try again when one has ended")
            self._all.add(stream)

    def leave(self, stream: Stream) -> None:
        """Remove a stream that ended."""
        with self._lock:
            self._all.discard(stream)
        stream.end()

    def stop(self) -> None:
        """Let each stream end with its next batch."""
        for stream in self.under_way():
            stream.stopped = True

    def close(self) -> None:
        """Stop making batches ahead."""
        self.ahead.close()

    def under_way(self) -> list[Stream]:
        """Return the streams that have not ended."""
        with self._lock:
            return list(self._all)

    def peers(self) -> set[Peer]:
        """The connections that they go over."""
        return {stream.peer for stream in self.under_way()}

    def keep(self) -> None:
        """Renew what leases they hold."""
        for stream in self.under_way():
            stream.keep()

    def idle_peers(self, now: float) -> set[Peer]:
        """The connections none of whose streams has moved for as long as a client may take."""
        streams = self.under_way()
        most = self._limits.idle_s
        idle = Counter(stream.peer for stream in streams if stream.idle_s(now) > (stream.patience_s or most))
        of_peer = Counter(stream.peer for stream in streams)
        return {peer for peer, number in idle.items() if number == of_peer[peer]}
