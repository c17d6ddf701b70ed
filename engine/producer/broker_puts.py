"""What a broker does for its clients, for a process on its host: requests stored as the version `compat` stores them.

Implements: SendMessageProcessor, EndTransactionProcessor, TransactionalMessageServiceImpl (its op messages)
(spec: store-formats, sections 3, 5, 8)
The decisions are `store.put.request` and its neighbours; here drafts go into the ring, and answers come back.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from engine.errors import BrokerGone, ForeignProducer, MessageIllegal
from engine.producer.argument_checks import checked_request, text, truth, whole
from engine.producer.columns import as_bytes
from engine.producer.connection import LIVENESS_NS, Connection
from engine.producer.first_run import make_ready
from engine.producer.op_writer import Op, OpWriter
from engine.producer.put_kernel import follow
from engine.producer.unique_keys import UniqueKeys
from engine.protocol.ha.put_status import PutMessageStatus
from engine.rings import encode_kernel
from engine.rings.payload import COMPOSED, payload_of
from ipc import chance, forks
from ipc.clock import monotonic_ms, wall_ms
from ipc.errors import RingFull
from store.message.record import Message, SysFlag, decode
from store.put.batch import batch_to_log, received_batch
from store.put.draft import Draft, draft_of, draft_of_batch, starts_of
from store.put.policy import Facts
from store.put.request import LONG_MAX, SendRequest, Stored, received, to_log
from store.put.resend import SendBack, check_half, committed, op_message, op_offsets, sent_back

SECONDS_MAX = 1e9  # of a timeout
TURNS_MAX = 65_536  # topics whose turn is remembered


class SendResult(NamedTuple):
    """Outcome of one message. `message_id` is RocketMQ's offsetMsgId; of a batch, all ids with commas."""

    status: PutMessageStatus
    message_id: str
    queue_id: int
    queue_offset: int
    physical_offset: int


class Sent(NamedTuple):
    """A put in the ring of `connection` under `number`. `queue_id` is the one its client named, `in_sync_slaves` as
    it was before.

    `length`: bytes of the record, 0 where only the writer knows; `batch`: the records of a batch.
    """

    connection: Connection
    number: int
    queue_id: int
    length: int
    in_sync_slaves: int
    waits: bool = True
    batch: bytes = b""


class BrokerPuts:
    """The base of `Producer`: everything that takes a message as a broker does."""

    def __init__(self, connection: Connection, timeout: float) -> None:
        self._connection, self._timeout_ms = connection, _milliseconds(timeout)
        self._is_unanswered = False  # something was sent without waiting, and nobody asked what became of it
        make_ready(connection.counters)
        self._lock = threading.Lock()
        self._unique_keys = UniqueKeys(connection.store_host.ip)
        self._slots: dict[tuple[str, int], int] = {}
        self._turns: dict[str, list[int]] = {}  # of a topic: its next queue, and how many take turns (0: to be asked)
        self._ops = OpWriter(self, bytes_max=connection.op_bytes_max, interval_ms=connection.op_interval_ms)
        self._when_dropped(self._ops.end)
        forks.tell(self)

    def forked(self) -> None:
        """Make a new lock in a child: the parent's may be held by a thread that does not exist there."""
        self._lock = threading.Lock()
        self._connection.forked()

    def _when_dropped(self, end: Callable[[], None]) -> None:
        """Register `end` to be called once this producer is collected, in its own process."""
        weakref.finalize(self, _call_in, self._connection.owner, end).atexit = False

    def __reduce_ex__(self, _protocol: Any) -> Any:
        """Neither pickled nor copied. Raises ForeignProducer."""
        raise ForeignProducer(self._connection.store, self._connection.owner)

    def put_message(self, request: SendRequest, *, timeout: float | None = None) -> SendResult:
        """Store what a client sent, as the broker of the setting `compat` does, and wait for it.

        Raises InvalidMessage, PropertiesTooLarge (nothing sent), and what `send` raises.
        """
        self._connection.require_owned()
        request = checked_request(request)
        with self._lock:
            self._follow_topics()
        if request.queue_id < 0:
            request = replace(request, queue_id=self._next_queue(request.topic))
        deadline_ms = self.deadline(timeout)
        draft, waits = self._draft_of(request)
        return self._put_draft(draft, waits, deadline_ms, request.queue_id)

    def end_transaction(
        self, half: SendResult, *, commit: bool, group: str | None = None, timeout: float | None = None
    ) -> SendResult | None:
        """Commit or roll back what `send_half` (or `put_message` with TRAN_MSG) put: the committed message's result.

        `group` is compared with the half message's producer group when given. An op message marks the half as done:
        at once with compat 4.9, together with others with compat 5, within transactionOpBatchInterval; later where the
        broker takes no messages just then.
        Raises InvalidMessage when there is no such half message, and what `send` raises.
        """
        self._connection.require_owned()
        if not isinstance(half, SendResult):
            raise MessageIllegal("half", f"it is what send_half returned, not {type(half).__name__}")
        physical_offset, commit = whole(half.physical_offset, "offset", 0, LONG_MAX), truth(commit, "commit")
        group = None if group is None else text(group, "group")
        deadline_ms, facts = self.deadline(timeout), self._connection.facts.current()
        message = self._message_at(physical_offset)
        check_half(message, group)
        result = None
        if commit:
            stored = committed(message, facts)
            result = self._put_stored(stored, facts, deadline_ms, stored.queue_id)
        offsets = op_offsets(message.queue_offset, facts)
        if facts.policy.ops_in_batches:
            self._ops.add(message.queue_id, offsets, deadline_ms)
        else:
            self._ops.put(Op(message.queue_id, offsets), deadline_ms)
        return result

    def send_back(
        self,
        physical_offset: int,
        *,
        group: str,
        delay_level: int = 0,
        max_reconsume_times: int = 16,
        queue_id: int = 0,
        timeout: float | None = None,
    ) -> SendResult:
        """Give the message at `physical_offset` back, for `group` to get it again later, or for its dead letters."""
        self._connection.require_owned()
        deadline_ms, facts = self.deadline(timeout), self._connection.facts.current()
        physical_offset = whole(physical_offset, "offset", 0, LONG_MAX)
        asked = SendBack(
            group=text(group, "group"),
            delay_level=whole(delay_level, "delay level"),
            max_reconsume_times=whole(max_reconsume_times, "max_reconsume_times"),
            queue_id=whole(queue_id, "queue id", 0),
        )
        stored = sent_back(self._message_at(physical_offset), asked, facts)
        self._connection.rules.check_retry(stored.topic)
        return self._put_stored(stored, facts, deadline_ms, stored.queue_id)

    def write_ops(self, timeout: float | None = None) -> None:
        """Write the op messages that are pending, without waiting for more (compat 5)."""
        self._connection.require_owned()
        self._ops.write(self.deadline(timeout))

    def deadline(self, timeout: float | None) -> int:
        """Return when a call that begins now times out, in monotonic ms; None is the producer's own timeout."""
        return monotonic_ms() + (self._timeout_ms if timeout is None else _milliseconds(timeout))

    # a broker that was started again

    def _attach_again(self, gone: BrokerGone) -> None:
        """Go on with the broker that runs now, where nothing was put that this error is to tell of.

        Raises `gone` where none runs, or another call is owed an answer: what was sent without waiting is told of
        once, and nothing is ever put a second time here. Raises what a new producer would, too.
        """
        before, is_owed, self._is_unanswered = self._connection, self._is_unanswered, False
        if is_owed or not before.is_succeeded:
            raise gone
        connection = Connection(before.store)
        if not connection.is_running:  # not yet
            connection.close()
            raise gone
        self._attached(connection)
        before.close()

    def _require_attached(self) -> None:
        """Attach to a broker started again if this one has ended; else raise like `_attach_again`."""
        try:
            self._connection.require_running()
        except BrokerGone as gone:
            self._attach_again(gone)

    def _attached(self, connection: Connection) -> None:
        """Forget all that was known of the broker before."""
        self._connection = connection
        self._slots.clear()
        self._unique_keys = UniqueKeys(connection.store_host.ip)
        self._forget_topics()

    # into the ring

    def _draft_of(self, request: SendRequest) -> tuple[Draft, bool]:
        """Return what is stored for a request, and whether its client waits. Raises InvalidMessage and its like."""
        self._connection.rules.check(request.topic, request.queue_id)
        facts = self._connection.facts.current()
        if not request.batch:
            stored = received(request, facts, self._unique_keys.new())
        else:
            stored = received_batch(request, facts)
            if not stored.sys_flag & SysFlag.INNER_BATCH:
                return draft_of_batch(batch_to_log(stored, facts), facts), stored.waits
        return draft_of(to_log(stored, facts), facts), stored.waits

    def _next_queue(self, topic: str) -> int:
        """The queue whose turn it is. Raises NoPermission, TopicNotExist."""
        turn = self._turns.get(topic)
        if turn is None or not turn[1]:
            if turn is None and len(self._turns) >= TURNS_MAX:
                self._turns.clear()
            queues = self._connection.rules.served(topic).queue_nums
            # any queue first, as ThreadLocalIndex of RocketMQ's client: many producers of one message fill all
            turn = self._turns[topic] = [turn[0] if turn else chance.below(queues), queues]
        queue_id = turn[0] if turn[0] < turn[1] else 0
        turn[0] = queue_id + 1
        return queue_id

    def _follow_topics(self) -> bool:
        """Forget what was known of topics if they may be others by now; whether they may."""
        if self._connection.topics_are_seen:
            return False
        with self._connection.seeing_topics():
            self._forget_topics()
        return True

    def _forget_topics(self) -> None:
        for turn in list(self._turns.values()):
            turn[1] = 0

    def _message_at(self, physical_offset: int) -> Message:
        """The message that begins there. Raises OffsetOutOfRange, CorruptRecord, NotAStore."""
        from store.reading.log_reader import open_log  # few producers read

        reader = open_log(self._connection.store)
        boundary = reader.boundary_at(physical_offset)
        if reader.files is None or boundary != physical_offset:
            raise MessageIllegal(f"offset {physical_offset}", "no message begins there")
        base = reader.files.base_of(physical_offset)
        with reader.files.open(base) as segment:
            message = decode(segment.view, physical_offset - base, path=str(segment.path))
            object.__setattr__(message, "body", bytes(message.body))
        return message

    def _put_stored(self, stored: Stored, facts: Facts, deadline_ms: int, queue_id: int) -> SendResult:
        draft = draft_of(to_log(stored, facts), facts)
        return self._put_draft(draft, stored.waits, deadline_ms, queue_id)

    def _put_draft(self, draft: Draft, waits: bool, deadline_ms: int, queue_id: int) -> SendResult:
        """Publish a draft and wait for its answer."""
        began_ns = time.monotonic_ns()
        with self._lock:
            sent = self._publish_again(draft, waits, deadline_ms, queue_id)
            sent.connection.places.expect(sent.number)
        return self._answer_of(sent, deadline_ms, began_ns)

    def _publish_again(self, draft: Draft, waits: bool, deadline_ms: int, queue_id: int) -> Sent:
        """Publish like `_publish`; if this broker is gone, publish to the one that was started again."""
        try:
            return self._publish(draft, waits, deadline_ms, queue_id)
        except BrokerGone as gone:
            self._attach_again(gone)
            return self._publish(draft, waits, deadline_ms, queue_id)

    def _publish(self, draft: Draft, waits: bool, deadline_ms: int, queue_id: int) -> Sent:
        connection = self._connection
        slot = self._slot((draft.topic, draft.queue_id), deadline_ms)
        if draft.is_plain:
            payload = encode_kernel.hidden(draft.pieces[0])
        else:
            payload = payload_of(draft, lambda queue: self._slot(queue, deadline_ms))
            slot |= COMPOSED
        connection.require_running()
        connection.raise_refusals()
        connection.check_payload(sum(map(len, draft.pieces)), len(payload))
        in_sync_slaves = connection.counters.in_sync_slaves.read()
        if waits:
            connection.require_replicas(in_sync_slaves)
        arguments, began_ms = (*connection.outlet, as_bytes(payload), slot), 0
        while connection.room_to_publish() < 1 or (number := int(encode_kernel.put_payload(*arguments))) < 0:
            began_ms = began_ms or monotonic_ms()
            if not connection.await_room(deadline_ms):
                raise RingFull(connection.ring.path, len(payload), monotonic_ms() - began_ms)
        length = 0 if draft.holes else len(draft.pieces[0])
        batch = draft.pieces[0] if draft.records > 1 else b""
        return Sent(connection, number, queue_id, length, in_sync_slaves, waits, batch)

    def _slot(self, queue: tuple[str, int], deadline_ms: int) -> int:
        slot = self._slots.get(queue)
        if slot is None:
            slot = self._slots[queue] = self._connection.slot_of(*queue, deadline_ms)  # bounded by the queue table
        return slot

    def _answer_of(self, sent: Sent, deadline_ms: int, began_ns: int) -> SendResult:
        """Wait for the answer to what was sent, whose place is expected.

        Raises MessagesRefused, SendTimeout, BrokerGone.
        """
        connection, number, is_done, status = sent.connection, sent.number, False, PutMessageStatus.PUT_OK
        try:
            if not (sent.waits and sent.length):
                status, physical_offset, queue_offset = self._answer_of_any_length(sent, deadline_ms, began_ns)
            else:
                if connection.follows_one and sent.in_sync_slaves >= connection.slaves_needed:
                    answer = follow(connection.block, number, sent.length, LIVENESS_NS, began_ns)
                    is_done, physical_offset, queue_offset = answer
                if not is_done:
                    status, physical_offset, queue_offset = connection.await_status_of(
                        number, sent.length, sent.in_sync_slaves, deadline_ms, began_ns
                    )
        finally:
            connection.places.forget(number)
        prefix = connection.message_id_prefix
        if not sent.batch:
            return SendResult(status, f"{prefix}{physical_offset:016X}", sent.queue_id, queue_offset, physical_offset)
        ids = ",".join(f"{prefix}{physical_offset + at:016X}" for at in starts_of(sent.batch))
        return SendResult(status, ids, sent.queue_id, queue_offset, physical_offset)

    def _answer_of_any_length(self, sent: Sent, deadline_ms: int, began_ns: int) -> tuple[PutMessageStatus, int, int]:
        """Await a record whose length only the writer knows (the log's end is behind it), or which nobody waits for."""
        connection, status = sent.connection, PutMessageStatus.PUT_OK
        physical_offset, queue_offset = connection.await_place(sent.number, deadline_ms)
        if sent.waits:
            end_offset = connection.counters.max_physical_offset.read()
            status = connection.await_status_at(end_offset, sent.in_sync_slaves, deadline_ms)
        connection.clock.stop(began_ns)
        return status, physical_offset, queue_offset

    # op messages

    def put_op(self, op: Op, deadline_ms: int) -> None:
        """Put one op message. Raises what `send` raises."""
        if self._is_unanswered:  # the caller that sent it must hear of it first
            self._connection.require_running()
        with self._lock:
            self._require_attached()
        facts = self._connection.facts.current()
        stored = op_message(op.queue_id, op.offsets, facts, wall_ms())
        self._put_stored(stored, facts, deadline_ms, op.queue_id)


def _call_in(process: int, end: Callable[[], None]) -> None:
    if os.getpid() == process:
        end()


def _milliseconds(seconds: float) -> int:
    """Convert a timeout to milliseconds, rounded up. Raises MessageIllegal."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= SECONDS_MAX:
        raise MessageIllegal(f"timeout {seconds!r}", "it is a number of seconds, 0 or more")
    return math.ceil(seconds * 1000)
