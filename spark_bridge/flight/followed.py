"""A store as the drivers of streams ask about it: the steps of a stream in place, taken here for who has no replica.

What was looked at last is kept, so that the next look costs what it costs in place; nothing depends on it. A lease is
the one thing that a driver leaves here, for a minute from its last word.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spark_bridge.flight.errors import TicketBehind
from spark_bridge.flight.questions import CUT, HOLD, LOOK, NAMES, SIZES, START, Question, by_queue, nested, parsed
from spark_bridge.flight.served import ServedStore
from spark_bridge.options.read import ReadOptions
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan.inventory import selection_of
from spark_bridge.split.leases import without_lease
from spark_bridge.stream.offsets import ONLY_STORE, QueueKey
from spark_bridge.stream.options import StreamOptions, parse_stream_options
from spark_bridge.stream.stores import StreamStores, Unread
from spark_bridge.stream.tail import StoreView
from store.files import pointer
from store.upkeep import leases

KEPT_MAX = 32  # selections that were looked at last
KEPT_S = 60.0
HOLDERS_MAX = 256
HOLD_MS = 60_000
QUEUES_MAX = 100_000  # of one answer
DIGEST_BYTES = 16
SILENT: dict[str, Any] = {"silent": True}  # killed, and no broker has recovered it: nobody can say


@dataclass
class _Kept:
    """One selection's queues, as they were at the last look; one thread at a time looks."""

    stores: StreamStores
    lock: threading.Lock = field(default_factory=threading.Lock)
    used: float = 0.0


class _Asked(NamedTuple):
    """A question, its options, and the store as it is."""

    question: Question
    options: StreamOptions
    stores: StreamStores
    view: StoreView


class FollowedStore:
    """Answers questions of streams about one store."""

    def __init__(self, store: ServedStore) -> None:
        self._store = store
        self._kept: OrderedDict[object, _Kept] = OrderedDict()
        self._holds: OrderedDict[str, tuple[float, leases.Lease]] = OrderedDict()
        self._lock = threading.Lock()

    def answer(self, body: bytes) -> bytes:
        """The answer to a question. Raises InvalidOption, TicketBehind, and what a stream in place raises."""
        question = parsed(body)
        options = parse_stream_options({**question.options, "path": self._store.root})
        read = self._store.resolved(options.read)
        answers: dict[str, Callable[[_Asked], dict[str, Any]]] = {
            LOOK: self._looked, START: _starts, NAMES: _names, CUT: _cut, SIZES: _sizes, HOLD: self._held,
        }  # fmt: skip
        with self._looking(read) as stores:
            stores.look()
            view = stores.views.get(ONLY_STORE)
            if view is None:
                return json.dumps(SILENT).encode()
            return json.dumps(answers[question.ask](_Asked(question, options, stores, view))).encode()

    @contextmanager
    def _looking(self, read: ReadOptions) -> Iterator[StreamStores]:
        """The queues that a read selects, for this thread alone."""
        key = selection_of(read, self._store.broker_name), read.only_confirmed, read.rows.permissive
        with self._lock:
            kept = self._kept.setdefault(key, _Kept(StreamStores(read)))
            self._kept.move_to_end(key)
            over = [self._kept.popitem(last=False)[1] for _ in range(len(self._kept) - KEPT_MAX)]
        _close(over)
        with kept.lock:
            kept.stores.options, kept.used = read, time.monotonic()
            try:
                yield kept.stores
            finally:
                with self._lock:
                    is_kept = self._kept.get(key) is kept
                if not is_kept:  # it had to give way meanwhile
                    kept.stores.close()

    def _looked(self, asked: _Asked) -> dict[str, Any]:
        view, log = asked.view, asked.view.extent
        if len(view.queues) > QUEUES_MAX:
            what = f"the stream reads {len(view.queues)} queues, {QUEUES_MAX} at most through Flight"
            raise InvalidOption(f"{what}; name fewer topics")
        looked = {
            "broker": self._store.broker_name,
            "running": asked.stores.tails[ONLY_STORE].is_served,
            "judged": view.judged,
            "log": [log.segment_bytes, log.min_physical_offset, log.reput_from_offset, log.max_physical_offset],
            "queues": nested({queue: (tail.first, tail.end) for queue, tail in view.queues.items()}),
        }
        digest = hashlib.blake2b(json.dumps(looked).encode(), digest_size=DIGEST_BYTES).hexdigest()
        return {"same": digest} if digest == asked.question.seen else {**looked, "digest": digest}

    def _held(self, asked: _Asked) -> dict[str, Any]:
        """The log is held from what the stream has not read on."""
        stores, question = asked.stores, asked.question
        if not stores.tails[ONLY_STORE].is_served or not question.holder:
            return {}
        done = {QueueKey(ONLY_STORE, *queue): offset for queue, offset in question.done.items()}
        low, until = stores.lowest(ONLY_STORE, asked.view, done), time.monotonic() + HOLD_MS / 1000
        try:
            with self._lock:
                known = self._holds.pop(question.holder, None)
                if known is None:
                    lease = leases.acquire(self._store.root, low, HOLD_MS)
                else:
                    lease = known[1]
                    lease.renew(low)
                self._holds[question.holder] = until, lease
                over = [self._holds.popitem(last=False)[1] for _ in range(len(self._holds) - HOLDERS_MAX)]
        except OSError as error:
            pointer.say_once(without_lease(self._store.root, error))
            return {}
        for _until, held in over:
            held.release()
        return {"low": low}

    def sweep(self, now: float) -> None:
        """Let go of what nobody has asked about for long, and of holds that were not renewed."""
        with self._lock:
            old = [key for key, kept in self._kept.items() if now - kept.used > KEPT_S and not kept.lock.locked()]
            dropped = [self._kept.pop(key) for key in old]
            over = [self._holds.pop(holder)[1] for holder, (until, _) in [*self._holds.items()] if until <= now]
        _close(dropped)
        for lease in over:
            lease.release()

    def close(self) -> None:
        """Close all stores that were followed."""
        self.sweep(float("inf"))


def _close(dropped: Sequence[_Kept]) -> None:
    """Close those not in use; one that is in use is closed by the thread that holds its lock."""
    for kept in dropped:
        if kept.lock.acquire(blocking=False):
            kept.stores.close()
            kept.lock.release()


def _starts(asked: _Asked) -> dict[str, Any]:
    there = {QueueKey(ONLY_STORE, *queue): (tail.first, tail.end) for queue, tail in asked.view.queues.items()}
    starts = asked.stores.starts(asked.options, there)
    return {"offsets": nested({key[1:]: offset for key, offset in starts.items()})}


def _names(asked: _Asked) -> dict[str, Any]:
    asked.stores.refuse_missing(asked.question.topics)
    return {}


def _cut(asked: _Asked) -> dict[str, Any]:
    spans = _spans(asked)
    rows = asked.question.rows
    most = sum(span.end - span.start for span in spans) if rows is None else rows
    ends = asked.stores.cut(spans, most, asked.question.size)
    return {"ends": nested(by_queue(asked.question.spans, ends))}


def _sizes(asked: _Asked) -> dict[str, Any]:
    return {"sizes": nested(by_queue(asked.question.spans, asked.stores.entry_bytes(_spans(asked))))}


def _spans(asked: _Asked) -> list[Unread]:
    """Return what the question names, all of which is here. Raises TicketBehind."""
    queues = asked.view.queues
    for (topic, queue_id), (_start, end) in asked.question.spans.items():
        tail = queues.get((topic, queue_id))
        if tail is None or end > tail.end:
            what = f"queue {queue_id} of topic {topic[:255]!r}"
            raise TicketBehind(asked.stores.tails[ONLY_STORE].broker_name, what, tail.end if tail else 0, end)
    return [Unread(QueueKey(ONLY_STORE, *queue), *span) for queue, span in asked.question.spans.items()]
