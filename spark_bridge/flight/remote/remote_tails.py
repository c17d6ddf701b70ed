"""A stream's stores where the driver has none: their ends, and the cuts of its batches, asked of Flight servers.

Of a log's replicas one is asked as long as it answers; every few seconds all are compared, and the one that has come
furthest goes on, those with a broker before those at rest: a master that was left behind by a promotion holds what the
new history does not have.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from spark_bridge.flight.client import PAUSE_S, RemoteStore
from spark_bridge.flight.errors import RemoteFault
from spark_bridge.flight.questions import (
    CUT,
    HOLD,
    LOOK,
    NAMES,
    SIZES,
    START,
    STREAM_ACTION,
    Question,
    flat,
)
from spark_bridge.flight.wire_errors import ELSEWHERE, RETRIED
from spark_bridge.options.flights import Flights
from spark_bridge.options.read import ReadOptions
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan.names import UnknownTopic
from spark_bridge.split.splits import LogExtent
from spark_bridge.stream.offsets import ONLY_STORE, Bounds, Offsets, QueueKey
from spark_bridge.stream.options import StreamOptions
from spark_bridge.stream.stores import LEASE_MOVES_S, StoreNotReady, StreamStores, Unread
from spark_bridge.stream.tail import QueueTail, StoreView
from store.errors import NoBroker

log = logging.getLogger("slipstream.flight")

LOOK_EVERY_S = 0.05
COMPARE_EVERY_S = 5.0
LEFT_ALONE_S = 30.0  # one that does not answer, while others do
ANSWER_S = 10.0
PATIENCE_S = 30.0  # while nobody answers


class RemoteQueue(QueueTail):
    """A queue's ends, as a server has said them; what lies between is the server's to look at."""

    __slots__ = ()

    def __init__(self, first: int, end: int) -> None:
        self.directory, self.first, self.end = "", first, end


class RemoteTail:
    """The growing end of one log, asked of its replicas' servers. Raises what they raise, and ServerUnreachable."""

    def __init__(self, flights: Flights, locations: Sequence[str], options: Mapping[str, str]) -> None:
        self.root, self.broker_name, self.is_served = ",".join(locations), "", False
        self._connect = partial(RemoteStore, token=flights.token, tls_roots=flights.roots)
        self._options = options
        self._stores: dict[str, RemoteStore] = {}
        self._ranked = list(locations)
        self._left_until = dict.fromkeys(locations, float("-inf"))
        self._at: str | None = None  # who answered last
        self._compare_at = self._look_at = float("-inf")
        self._seen: tuple[str, StoreView] | None = None

    def look(self, patience_s: float | None = None) -> StoreView | None:
        """The queues now, from the replica that is furthest; None while no replica can say."""
        time.sleep(max(0.0, self._look_at - time.monotonic()))
        deadline = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
        while True:
            began = time.monotonic()
            try:
                view = self._looked()
                took = time.monotonic() - began  # of very many queues a look is long: servers have others to answer
                self._look_at = began + took + max(LOOK_EVERY_S, 2 * took)
                return view
            except Exception as error:
                if getattr(error, "code", "") not in RETRIED or time.monotonic() >= deadline:
                    raise
                time.sleep(PAUSE_S)

    def ask(self, ask: str, **more: Any) -> Any:
        """The answer of the replica that was looked at, else of another one. Raises StoreNotReady.

        One whose broker changes its role is silent for a moment.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            refusal: Exception = StoreNotReady(self.root, PATIENCE_S)
            if self._at is not None or self.look() is not None:
                at = self._at
                assert at is not None
                try:
                    answer = self._asked(at, Question(ask, self._options, **more))
                    if "silent" not in answer:
                        return answer
                    self._at = None
                except Exception as error:
                    refusal = self._left(at, error)
            if time.monotonic() >= deadline:
                raise refusal
            time.sleep(PAUSE_S)

    def close(self) -> None:
        """Close the connections to all servers."""
        while self._stores:
            self._stores.popitem()[1].close()

    def _looked(self) -> StoreView | None:
        """Return a replica's view of the store. Raises the last error where no replica answers."""
        refusal: Exception | None = None
        seen = "" if self._seen is None else self._seen[0]
        for location in self._in_order():
            try:
                answer = self._asked(location, Question(LOOK, self._options, seen=seen))
            except Exception as error:
                refusal = self._left(location, error)
                continue
            if "silent" not in answer:
                self._at = location
                return self._view(answer)
        self._at = None
        if refusal is not None:
            raise refusal
        return None

    def _in_order(self) -> list[str]:
        """Return the replicas' addresses in the order in which to ask them."""
        if self._at is None or (len(self._ranked) > 1 and time.monotonic() >= self._compare_at):
            self._compare()
            return self._ranked
        return [self._at, *(location for location in self._ranked if location != self._at)]

    def _compare(self) -> None:
        """Ask all how far they are. Raises InvalidOption where they are of several brokers."""
        now, ranks, names = time.monotonic(), {}, {}
        refusal: Exception | None = None
        waiting = [location for location in self._ranked if self._left_until[location] <= now]
        for location in waiting or self._ranked:
            try:
                status = self._store(location).store(ANSWER_S)
            except Exception as error:
                refusal = self._left(location, error)
                continue
            ranks[location] = bool(status["isRunning"]), int(status["reputFromOffset"])
            names[str(status["brokerName"])] = location
        if not ranks and refusal is not None:
            raise refusal
        if len(names) > 1 or (self.broker_name and names.keys() != {self.broker_name}):
            listed = ", ".join(f"{location} of {name!r}" for name, location in names.items())
            what = f"one path is one broker's log, {self.broker_name or 'of one name'}, and here are {listed}"
            raise InvalidOption(f"{what}; give `paths`, one for each broker")
        self.broker_name = next(iter(names))
        unknown = (False, -1)
        self._ranked.sort(key=lambda location: ranks.get(location, unknown), reverse=True)
        self._compare_at = time.monotonic() + COMPARE_EVERY_S

    def _view(self, answer: Mapping[str, Any]) -> StoreView:
        if self._seen is not None and answer.get("same") == self._seen[0]:
            return self._seen[1]
        try:
            segment, low, reput, end = answer["log"]
            queues = {queue: RemoteQueue(*ends) for queue, ends in flat(answer["queues"]).items()}
            extent = LogExtent("", segment, low, reput, end, broker_name=answer["broker"])
            self.is_served, judged, digest = answer["running"], answer["judged"], answer["digest"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RemoteFault(f"{self._at}: this version does not know its answer ({error!r})") from None
        self._seen = digest, StoreView(extent, queues, judged)
        return self._seen[1]

    def _asked(self, location: str, question: Question) -> Any:
        return self._store(location).ask(STREAM_ACTION, question.encoded(), ANSWER_S)

    def _store(self, location: str) -> RemoteStore:
        if location not in self._stores:
            self._stores[location] = self._connect(location)
        return self._stores[location]

    def _left(self, location: str, why: Exception) -> Exception:
        """Others are asked for a while. Raises what another replica would say, too."""
        if getattr(why, "code", "") not in ELSEWHERE | {NoBroker.code}:
            raise why
        log.info("trying another replica: %s", why)
        self._left_until[location] = time.monotonic() + LEFT_ALONE_S
        if self._at == location:
            self._at = None
        return why


class RemoteStores(StreamStores):
    """The stores of one streaming query, on other hosts."""

    def __init__(self, read: ReadOptions, flights: Flights, sent: Mapping[str, str]) -> None:
        super().__init__(read)
        self.by_store = len(flights.stores) != 1
        self._flights, self._sent, self._holder = flights, sent, uuid.uuid4().hex
        self._asked: dict[str, RemoteTail] = {}

    def _resolve(self) -> None:
        """Ask each of the logs whose it is, once."""
        if self._asked:
            return
        tails: dict[str, RemoteTail] = {}
        for locations in self._flights.stores:
            tail = RemoteTail(self._flights, locations, self._sent)
            tail.look(0.0)  # a wrong address fails at once, as for a batch read
            name = tail.broker_name if self.by_store else ONLY_STORE
            if name in tails:
                what = f"{tails[name].root} and {tail.root} have the log of {name!r}"
                raise InvalidOption(f"{what}: replicas of one log are one path, with commas between them")
            tails[name] = tail
        self._asked = tails
        self.tails.update(tails)

    def starts(self, options: StreamOptions, there: Bounds) -> Offsets:
        """Return where a query without a checkpoint begins, as the stores say."""
        offsets: Offsets = {}
        for name, tail in self._asked.items():
            starts = _part(tail, tail.ask(START), "offsets")
            offsets.update((QueueKey(name, *queue), offset) for queue, offset in starts.items())
        return offsets

    def refuse_missing(self, read: Iterable[str]) -> None:
        """Raise UnknownTopic for a name that no store has, except topics that were read already."""
        topics, refusals = tuple(sorted(set(read))), []
        for tail in self._asked.values():
            try:
                tail.ask(NAMES, topics=topics)
            except UnknownTopic as error:
                refusals.append(error)
        if len(refusals) == len(self._asked):
            raise refusals[0]

    def cut(self, spans: Sequence[Unread], rows_max: int, bytes_max: int | None) -> list[int]:
        """The ends of spans of one store such that they keep to the limits: what comes first in the log."""
        if not spans:
            return []
        tail = self._asked[spans[0].key.store]
        ends = _part(tail, tail.ask(CUT, spans=_by_queue(spans), rows=rows_max, size=bytes_max), "ends")
        return [ends[span.key[1:]] for span in spans]

    def entry_bytes(self, spans: Sequence[Unread]) -> list[int]:
        """About how long the records of each span are."""
        sizes: dict[QueueKey, int] = {}
        for name, tail in self._asked.items():
            own = [span for span in spans if span.key.store == name]
            if own:
                part = _part(tail, tail.ask(SIZES, spans=_by_queue(own)), "sizes")
                sizes.update((QueueKey(name, *queue), size) for queue, size in part.items())
        return [sizes[span.key] for span in spans]

    def locations_of(self, broker_name: str) -> tuple[str, ...]:
        """The addresses of the replicas of that broker's log."""
        stores = self._flights.stores
        if len(stores) == 1:
            return stores[0]
        roots = {tail.broker_name: tail.root for tail in self._asked.values()}
        return next(locations for locations in stores if ",".join(locations) == roots[broker_name])

    def directory(self, key: QueueKey) -> str:
        """Return no directory: the place where a ticket is read says where its queues lie."""
        return ""

    def hold(self, done: Offsets) -> None:
        """Keep retention, at the replica that is asked, from what lies behind these offsets."""
        now = time.monotonic()
        for name, tail in self._asked.items():
            if not tail.is_served or now - self._moved.get(name, -LEASE_MOVES_S) < LEASE_MOVES_S:
                continue
            self._moved[name] = now
            own = {key[1:]: offset for key, offset in done.items() if key.store == name}
            try:
                tail.ask(HOLD, done=own, holder=self._holder)
            except Exception as error:
                log.warning("%s: the log is read without a lease: %s", tail.root, error)


def _by_queue(spans: Sequence[Unread]) -> dict[tuple[str, int], tuple[int, int]]:
    return {(span.key.topic, span.key.queue_id): (span.start, span.end) for span in spans}


def _part(tail: RemoteTail, answer: Any, name: str) -> dict[Any, int]:
    """Return what an answer says of each queue. Raises RemoteFault."""
    try:
        return flat(answer[name])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RemoteFault(f"{tail.root}: an answer that this version does not know ({error!r})") from None
