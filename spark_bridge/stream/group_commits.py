"""A stream's offsets, committed to a consumer group of its stores' brokers, on a thread of its own.

The query says how far it is and goes on; the newest offsets are sent here, once a second at most, and tried again after
a failure. So no broker ever delays or fails the query: failures are counted, and logged once a minute. Committed
is what Spark has finished, its checkpoint included. A group that is further on than the stream is left where it is,
unless the option commitRewind says otherwise: the stream may be a try with a production group's name, or read a copy.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ipc.errors import IpcError
from spark_bridge.options.views import ANY_BROKER, CommitOptions
from spark_bridge.plan.stores import StoreAt
from spark_bridge.replica import group_offsets, name_servers
from spark_bridge.replica.group_offsets import CommitRefused, QueueName
from spark_bridge.replica.remoting import Conversation
from spark_bridge.replica.tls import Tls, tls_of
from spark_bridge.stream.offsets import Offsets
from store.errors import StoreError
from store.message.topics import is_lmq
from store.reading import extent

log = logging.getLogger("slipstream.spark")

EVERY_S, RETRY_S = 1.0, 5.0
ROUND_S = 10.0  # for all that is said to one broker at a time
CHECKED_S = 30.0  # so often a broker is asked who it is, and whether consumers have come
TOLD_S = 60.0
SETTLED_S = 3.0  # how long a query that ends waits for its last word to be said

Failures = (OSError, ValueError, StoreError, IpcError)


class _Store:
    """The group's commits to one store's broker."""

    def __init__(self, options: CommitOptions, servers: Sequence[str], tls: Tls | None) -> None:
        self._options, self._servers, self._tls = options, servers, tls
        self._checked: tuple[str, float] = ("", 0.0)  # which address, and until when that is believed
        self.committed: dict[QueueName, int] = {}
        self.held: dict[QueueName, str] = {}  # what is not to be committed, and why
        self._group_at: dict[QueueName, int] = {}  # where the group is, by our own word or when it was last asked

    def commit(self, offsets: Mapping[QueueName, int], at: StoreAt) -> list[str]:
        """Commit what has changed; what of it the broker did not take, in words.

        Raises OSError, ValueError, CommitRefused, StoreError.
        """
        changed = {queue: offset for queue, offset in offsets.items() if self.committed.get(queue) != offset}
        if not changed:
            return []
        address, group = self._address(at), self._options.group
        if address != self._checked[0]:  # another master, whose tables may be behind
            self.committed.clear()
            self._group_at.clear()
            changed = dict(offsets)
        with _named_in_errors(address), Conversation(address, ROUND_S, self._tls) as broker:
            if self._checked[0] != address or time.monotonic() >= self._checked[1]:
                self._check(broker, at)
            self.held = self._held_back(broker, changed)
            wanted = {queue: offset for queue, offset in changed.items() if queue not in self.held}
            refused = group_offsets.commit(broker, group, wanted)
        said = {queue: offset for queue, offset in wanted.items() if queue not in refused}
        self.committed |= said
        self._group_at |= said
        return [f"{_named(queue)}: {why}" for queue, why in refused.items()]

    def _check(self, broker: Conversation, at: StoreAt) -> None:
        group = self._options.group
        group_offsets.require_master(broker, at.broker_name)
        group_offsets.require_free(broker, group)
        if self._checked[0] != broker.address:
            group_offsets.introduce(broker, group)
        self._checked = broker.address, time.monotonic() + CHECKED_S
        self._group_at.clear()  # others may have moved it: an administrator, another query of the same group

    def _held_back(self, broker: Conversation, changed: Mapping[QueueName, int]) -> dict[QueueName, str]:
        """Queues in which the group must not be set to our offset, and why."""
        unknown = [queue for queue in changed if queue not in self._group_at]
        places = group_offsets.places(broker, self._options.group, unknown)
        held = {queue: f"{_named(queue)}: {broker.address} does not report its end" for queue in unknown}
        for queue, place in places.items():
            if changed[queue] > place.end:  # asked again the next time: another store's, or a broker that is behind
                here = changed[queue]
                held[queue] = f"{_named(queue)}: {broker.address} has it up to {place.end}, the stream is at {here}"
            else:
                self._group_at[queue] = -1 if place.committed is None else place.committed
                del held[queue]
        for queue, offset in changed.items():
            ahead = self._group_at.get(queue, -1)
            is_ours = self.committed.get(queue) == ahead
            if queue not in held and not is_ours and offset < ahead and not self._options.may_rewind:
                back = "commitRewind=true moves it back"
                held[queue] = f"{_named(queue)}: the group is at {ahead}, the stream at {offset}; {back}"
        return held

    def _address(self, at: StoreAt) -> str:
        """Return where the master of the store's broker takes commits. Raises CommitRefused, OSError, ValueError."""
        given = self._options.brokers.get(at.broker_name, self._options.brokers.get(ANY_BROKER))
        if given is not None:
            return given
        if self._servers:
            return name_servers.master_of(self._servers, at.broker_name, self._tls)
        running = extent.running(at.root)  # None for a copy: a pointer is believed where it was written only
        if running is None:
            what = f"{at.root}: no broker of Slipstream runs on this store"
            raise CommitRefused(f"{what}; give its master's address as commitBroker")
        settings = running.settings
        if settings.get("brokerRole") != group_offsets.SLAVE:
            return str(settings.get("storeHost", ""))
        servers = [part for part in str(settings.get("namesrvAddr") or "").split(";") if part]
        if not servers:
            what = f"{at.root}: its broker is a slave and has no name server to ask for the master"
            raise CommitRefused(f"{what}; give the master's address as commitBroker")
        return name_servers.master_of(servers, at.broker_name, self._tls)


class GroupCommits:
    """The commits of one query. `done` and `close` are its own thread's to call."""

    def __init__(self, options: CommitOptions, servers: Sequence[str]) -> None:
        """Take the options. Raises InvalidOption for a tlsConfigFile that cannot be used."""
        self.options, self._servers, self._tls = options, servers, tls_of(options.tls_config_file)
        self._changed = threading.Condition()
        self._pending: tuple[Offsets, Mapping[str, StoreAt]] | None = None
        self._is_busy = self._is_closing = False
        self._again: tuple[Offsets, Mapping[str, StoreAt]] | None = None  # of which a part is held back
        self._thread: threading.Thread | None = None
        self._stores: dict[str, _Store] = {}
        self._told_s: float | None = None
        self._failures = 0

    @property
    def figures(self) -> dict[str, int]:
        """Return figures for the query's progress: queues committed, rounds that failed, queues held back."""
        stores = list(self._stores.values())
        queues, held = sum(len(one.committed) for one in stores), sum(len(one.held) for one in stores)
        return {"queues": queues, "failures": self._failures, "heldBack": held}

    def done(self, offsets: Offsets, places: Mapping[str, StoreAt]) -> None:
        """Spark has finished what lies before these offsets; `places` are the stores by their names in them."""
        with self._changed:
            self._pending = offsets, places
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="slipstream-commits", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def settle(self, seconds: float = SETTLED_S) -> None:
        """Wait until all that is done was said, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending is None and not self._is_busy, seconds)

    def close(self) -> None:
        """Say the last word, within SETTLED_S."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(SETTLED_S)

    def _run(self) -> None:
        while (taken := self._next()) is not None:
            failures = self._round(*taken)
            held = [why for one in self._stores.values() for why in one.held.values()]
            self._again = taken if held else None
            self._warn(failures or held)
            with self._changed:
                self._is_busy = False
                if failures:
                    self._failures += 1
                    self._pending = self._pending or (None if self._is_closing else taken)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_closing, RETRY_S if failures else EVERY_S)

    def _next(self) -> tuple[Offsets, Mapping[str, StoreAt]] | None:
        with self._changed:
            seconds = None if self._again is None else CHECKED_S
            self._changed.wait_for(lambda: self._pending is not None or self._is_closing, seconds)
            taken, self._pending = self._pending or (None if self._is_closing else self._again), None
            self._is_busy = taken is not None
            return taken

    def _round(self, offsets: Offsets, places: Mapping[str, StoreAt]) -> list[str]:
        """Say it to the broker of each store; what went wrong."""
        failures = []
        for name, at in places.items():
            own = {
                (key.topic, key.queue_id): offset
                for key, offset in offsets.items()
                if key.store == name and not is_lmq(key.topic)  # the broker keeps those apart
            }
            store = self._stores.setdefault(name, _Store(self.options, self._servers, self._tls))
            try:
                failures += store.commit(own, at)
            except Failures as error:
                failures.append(str(error))
        return failures

    def _warn(self, failures: Sequence[str]) -> None:
        now = time.monotonic()
        if failures and (self._told_s is None or now - self._told_s >= TOLD_S):
            self._told_s = now
            more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
            text = f"commitGroup {self.options.group}: not committed: {failures[0]}{more}; the query continues"
            log.warning("%s", " ".join(text.split()))


@contextmanager
def _named_in_errors(address: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(f"{address}: {error}") from error


def _named(queue: QueueName) -> str:
    return f"queue {queue[1]} of topic {queue[0]}"
