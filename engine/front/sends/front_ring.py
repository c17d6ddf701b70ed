"""A front's ring: drafts go in without waiting, outcomes come back when words in shared memory have moved.

Implements: the thread pools and futures behind CommitLog.asyncPutMessage
A thread of compiled code follows each word that answers depend on, and wakes the loop
(`engine.front.connections.bridge`); all that is done by then is answered in that turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from engine.front.connections.bridge import Bridge
from engine.front.connections.near_wait import NearWait
from engine.producer.pipeline import UNPUBLISHED, Outcome, Parked, Pipeline
from engine.protocol.ha.put_status import PutMessageStatus
from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import BrokerCounters
from ipc.ring import DESCRIPTOR_WORDS, Descriptor
from store.message.host import Host, offset_message_id
from store.put.draft import Draft, starts_of

SLOT_LIMIT_MS = 3000  # for the writer to say where a new queue is; a client waits no longer
PATIENCE_MS = 30_000  # without a word of the writer nobody knows what becomes of a put, and its client gave up long ago


class PutOutcome(NamedTuple):
    """Outcome of a put. `message_id` is RocketMQ's offsetMsgId; of several records, all ids with commas."""

    status: PutMessageStatus
    physical_offset: int
    queue_offset: int
    message_id: str
    queue_id: int
    number: int = UNPUBLISHED


class Waiter(NamedTuple):
    """Callbacks of a put. `began_ms` counts like `wait_ms`; `limit_ms` is how long the put may be parked."""

    on_done: Callable[[PutOutcome], None]
    on_expired: Callable[[int], None]
    queue_id: int
    limit_ms: int
    records: bytes
    on_number: Callable[[int], None] | None


class FrontPipeline(Pipeline):
    """A pipeline whose tokens are Waiters."""

    def numbered(self, token: Waiter, number: int) -> None:
        """Tell a put's owner under which number its record is published."""
        if token.on_number is not None:
            token.on_number(number)


class CompiledAnswers(Protocol):
    """Compiled sends, which publish into the same ring."""

    def note_done(self) -> bool:
        """Note what is done by now; whether the pipeline has to look at each itself."""

    def answer(self) -> int:
        """Answer its own of those done; how many rows of `done`, from its beginning on, are left to the pipeline."""

    def answer_failed(self, outcome: Outcome) -> None:
        """Answer one of its own puts that failed; one without an owner is ignored."""

    def end_turn(self) -> bool:
        """Ring for the writer, where that was not done, once all that came in this turn is read.

        Return whether one connection is all that sends.
        """


class FrontRing:
    """The ring of one front of a master, and the puts that are in it without an answer."""

    def __init__(
        self,
        config: BrokerConfig,
        counters: BrokerCounters,
        loop: asyncio.AbstractEventLoop,
        wanted_ring: int | None = None,
    ) -> None:
        self.pipeline = FrontPipeline(
            config,
            counters,
            puts_max=config.send_queue_capacity,
            bytes_max=config.send_bytes_in_flight_max,
            patience_ms=PATIENCE_MS,
            wanted_ring=wanted_ring,
        )
        self._loop, self._is_due = loop, False
        self._compiled: CompiledAnswers | None = None
        self.message_id_prefix = offset_message_id(Host(config.broker_ip1, config.listen_port), 0)[:-16]
        self._bridges = [Bridge(words, index, rests=True) for words, index in self.pipeline.followed]
        for bridge in self._bridges:
            loop.add_reader(bridge.fd, self._on_moved, bridge)
        self._near, self._is_waiting = NearWait(self.pipeline, self._bridges, self.collect), False

    def share(self, compiled: CompiledAnswers) -> None:
        """Let compiled sends publish into this ring; they answer their own puts."""
        self._compiled = compiled

    def put(
        self,
        draft: Draft,
        *,
        waits: bool,
        queue_id: int,
        on_done: Callable[[PutOutcome], None],
        limit_ms: int,
        on_expired: Callable[[int], None],
        on_number: Callable[[int], None] | None = None,
    ) -> None:
        """Put a draft; `on_done` is called later, once. Raises Busy where too much is under way: nothing is put.

        One that is still parked after `limit_ms` is taken back, and `on_expired(ms)` called instead. `queue_id` is what
        the client hears of it. `on_number` hears the number in the ring before the draft is there.
        """
        records = draft.pieces[0] if draft.records > 1 else b""
        waiter = Waiter(on_done, on_expired, queue_id, limit_ms, records, on_number)
        self.pipeline.put(draft, waits=waits, token=waiter)
        self.published()
        if self.pipeline.has_outcomes and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.collect)

    def published(self) -> None:
        """Something went into the ring: when what came in this turn is read, its answers are waited for."""
        if not self._is_waiting:
            self._is_waiting = True
            self._loop.call_soon(self._wait)

    def _wait(self) -> None:
        self._is_waiting = False
        is_alone = self._compiled is not None and self._compiled.end_turn()
        self._near.wait(is_alone=is_alone)

    def _on_moved(self, bridge: Bridge) -> None:
        bridge.heard()
        self._near.rang()
        self.collect()

    def collect(self, *, is_turn: bool = False) -> None:
        """Call the waiters of all puts that are done; `is_turn` also judges by the clock."""
        self._is_due = False
        if self._compiled is None:
            outcomes = self.pipeline.collect()
        else:
            if self._compiled.note_done() or is_turn:
                self.pipeline.judge(time.monotonic_ns())
            outcomes = self.pipeline.outcomes_of(self.pipeline.done_rows(self._compiled.answer()))
        for outcome in outcomes:
            waiter = outcome.token
            if waiter is not None:
                waiter.on_done(self._of(outcome, waiter))
            elif self._compiled is not None:
                self._compiled.answer_failed(outcome)

    def _of(self, outcome: Outcome, waiter: Waiter) -> PutOutcome:
        prefix, offset = self.message_id_prefix, outcome.physical_offset
        if not outcome.status.is_stored:
            message_id = ""
        elif waiter.records:
            message_id = ",".join(f"{prefix}{offset + at:016X}" for at in starts_of(waiter.records))
        else:
            message_id = f"{prefix}{offset:016X}"
        return PutOutcome(outcome.status, offset, outcome.queue_offset, message_id, waiter.queue_id, outcome.number)

    # the ring's numbers

    @property
    def ring_number(self) -> int:
        """Return the number of this front's ring."""
        return self.pipeline.ring_number

    def is_in_log(self, number: int) -> bool | None:
        """Return whether what this ring published under a number, at any time, is in the log; None: not known yet.

        False where it never was published, or so long ago that nobody knows.
        """
        pipeline = self.pipeline
        if pipeline.head <= number < pipeline.tail:
            return None
        if not max(0, pipeline.tail - pipeline.ring.descriptors) <= number < pipeline.tail:
            return False
        descriptors = pipeline.ring.words.reshape(-1, DESCRIPTOR_WORDS)
        return bool(descriptors[number % pipeline.ring.descriptors, Descriptor.PHYSICAL_OFFSET] >= 0)

    @property
    def is_at_rest(self) -> bool:
        """Return whether no put is under way and every outcome was handed out."""
        return not self.pipeline.puts and not self.pipeline.has_outcomes

    def turn(self) -> None:
        """Look at the clock: time-outs of what is under way."""
        if self.pipeline.puts or self.pipeline.has_outcomes:
            self.collect(is_turn=True)

    def expire(self, *, all_of_them: bool) -> None:
        """Take back what has been parked for too long, or all of it.

        A limit is for waiting behind others, as RocketMQ's is: a put whose queue is new is being looked after, and has
        the time that any question has.
        """
        now_ns = time.monotonic_ns()

        def waited_ms(parked: Parked) -> int:
            return (now_ns - parked.began_ns) // 1_000_000

        def is_over(parked: Parked) -> bool:
            draft, limit_ms = parked.draft, parked.token.limit_ms
            queues = (draft.topic, draft.queue_id), *(other for other in draft.others if other is not None)
            if self.pipeline.slots.missing(*queues) is not None:
                limit_ms = max(limit_ms, SLOT_LIMIT_MS)
            return all_of_them or waited_ms(parked) >= limit_ms

        for parked in list(self.pipeline.take_parked(is_over)):
            parked.token.on_expired(waited_ms(parked))

    def oldest_wait_ms(self) -> int:
        """Return how long the oldest put without an answer has waited."""
        began_ns = self.pipeline.oldest_began_ns()
        return 0 if began_ns is None else (time.monotonic_ns() - began_ns) // 1_000_000

    def close(self) -> None:
        """Give the ring back; what was published in it is still appended."""
        if self._compiled is not None:
            self._compiled.end_turn()
        for bridge in self._bridges:
            self._loop.remove_reader(bridge.fd)
            bridge.close()
        self.pipeline.close()
