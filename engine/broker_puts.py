"""What a broker does for its clients, for a process on its host: requests stored as the version `compat` stores them.

Implements: SendMessageProcessor, EndTransactionProcessor, TransactionalMessageServiceImpl (its op messages)
(spec: store-formats, sections 3, 5, 8)
The decisions are `store.put_message` and its neighbours; here drafts go into the ring, and answers come back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from engine import composed, drain, encoding
from engine.batches import as_bytes
from engine.connection import LIVENESS_NS, Connection
from engine.errors import EngineError, MessageIllegal
from engine.protocol.group_transfer import PutMessageStatus
from engine.role import wall_clock_ms
from engine.single_put import follow
from engine.unique_keys import UniqueKeys
from ipc.errors import RingFull
from ipc.waiting import NS_PER_MS
from store.log_reader import open_log
from store.message_policy import Facts
from store.op_batches import OpBatches
from store.put_again import SendBack, check_half, committed, op_message, op_offsets, sent_back
from store.put_batch import batch_to_log, received_batch
from store.put_message import WAIT, SendRequest, Stored, received, to_log
from store.put_record import Draft, draft_of, draft_of_batch
from store.record import Message, SysFlag, decode


class SendResult(NamedTuple):
    """What became of one message. `message_id` is RocketMQ's offsetMsgId; of a batch, all of them with commas."""

    status: PutMessageStatus
    message_id: str
    queue_id: int
    queue_offset: int
    physical_offset: int


class Sent(NamedTuple):
    """What is in the ring under `number`. `queue_id` is the one its client named, `in_sync_slaves` as it was before.

    `length`: bytes of the record, 0 where only the writer knows; `batch`: the records of a batch.
    """

    number: int
    queue_id: int
    length: int
    in_sync_slaves: int
    waits: bool = True
    batch: bytes = b""


class BrokerPuts:
    """The base of `Producer`: everything that takes a message as a broker does."""

    def __init__(self, connection: Connection, timeout: float) -> None:
        self._connection, self._timeout_ms = connection, int(timeout * 1000)
        self._lock = threading.Lock()
        self._unique_keys = UniqueKeys(connection.store_host.ip)
        self._slots: dict[tuple[str, int], int] = {}
        self._ops = OpBatches(bytes_max=connection.op_bytes_max, interval_ms=connection.op_interval_ms)
        self._ops_changed = threading.Condition()
        self._ops_thread: threading.Thread | None = None
        self._is_closed = False

    def put_message(self, request: SendRequest, *, timeout: float | None = None) -> SendResult:
        """Store what a client sent, as the broker of the setting `compat` does, and wait for it.

        Raises InvalidMessage, PropertiesTooLarge (nothing sent), and what `send` raises.
        """
        deadline_ms = self._deadline(timeout)
        draft, waits = self._draft_of(request)
        return self._put_draft(draft, waits, deadline_ms, request.queue_id)

    def end_transaction(
        self, half: SendResult, *, commit: bool, group: str | None = None, timeout: float | None = None
    ) -> SendResult | None:
        """Commit or roll back what `send_half` (or `put_message` with TRAN_MSG) put: the committed message's result.

        `group` is compared with the half message's producer group when given. An op message marks the half as done:
        at once with compat 4.9, together with others with compat 5, within transactionOpBatchInterval.
        Raises InvalidMessage when there is no such half message, and what `send` raises.
        """
        deadline_ms, facts, now_ms = self._deadline(timeout), self._connection.facts.current(), wall_clock_ms()
        message = self._message_at(half.physical_offset)
        check_half(message, group)
        result = None
        if commit:
            stored = committed(message, facts)
            result = self._put_stored(stored, facts, now_ms, deadline_ms, stored.queue_id)
        offsets = op_offsets(message.queue_offset, facts)
        if facts.policy.ops_in_batches:
            self._add_op(message.queue_id, offsets, now_ms)
        else:
            self._put_op(message.queue_id, offsets, facts, deadline_ms)
        return result

    def send_back(
        self, physical_offset: int, *, group: str, delay_level: int = 0, max_reconsume_times: int = 16,
        queue_id: int = 0, timeout: float | None = None,
    ) -> SendResult:  # fmt: skip
        """Give the message at `physical_offset` back, for `group` to get it again later, or for its dead letters."""
        deadline_ms, facts, now_ms = self._deadline(timeout), self._connection.facts.current(), wall_clock_ms()
        asked = SendBack(
            group=group, delay_level=delay_level, max_reconsume_times=max_reconsume_times, queue_id=queue_id
        )
        stored = sent_back(self._message_at(physical_offset), asked, facts)
        return self._put_stored(stored, facts, now_ms, deadline_ms, stored.queue_id)

    def write_ops(self, timeout: float | None = None) -> None:
        """Write the op messages that are pending, without waiting for more (compat 5)."""
        deadline_ms, facts = self._deadline(timeout), self._connection.facts.current()
        with self._ops_changed:
            pending = self._ops.due(wall_clock_ms(), all_of_them=True)
        for queue_id, offsets in pending:
            self._put_op(queue_id, offsets, facts, deadline_ms)

    # into the ring

    def _draft_of(self, request: SendRequest) -> tuple[Draft, bool]:
        """What is stored for a request, and whether its client waits for it. Raises InvalidMessage and its like."""
        facts, now_ms = self._connection.facts.current(), wall_clock_ms()
        if not request.batch:
            stored = received(request, facts, self._unique_keys.new())
        else:
            stored = received_batch(request, facts)
            if not stored.sys_flag & SysFlag.INNER_BATCH:
                return draft_of_batch(batch_to_log(stored, facts, now_ms), facts), _waits(stored)
        return draft_of(to_log(stored, facts, now_ms), facts), _waits(stored)

    def _deadline(self, timeout: float | None) -> int:
        return time.time_ns() // NS_PER_MS + (self._timeout_ms if timeout is None else int(timeout * 1000))

    def _message_at(self, physical_offset: int) -> Message:
        """The message that begins there. Raises OffsetOutOfRange, CorruptRecord, NotAStore."""
        reader = open_log(self._connection.store)
        boundary = reader.boundary_at(physical_offset)
        if reader.files is None or boundary != physical_offset:
            raise MessageIllegal(f"offset {physical_offset}", "no message begins there")
        base = reader.files.base_of(physical_offset)
        with reader.files.open(base) as segment:
            message = decode(segment.view, physical_offset - base, path=str(segment.path))
            object.__setattr__(message, "body", bytes(message.body))
        return message

    def _put_stored(
        self, stored: Stored, facts: Facts, now_ms: int, deadline_ms: int, queue_id: int
    ) -> SendResult:
        draft = draft_of(to_log(stored, facts, now_ms), facts)
        return self._put_draft(draft, _waits(stored), deadline_ms, queue_id)

    def _put_draft(self, draft: Draft, waits: bool, deadline_ms: int, queue_id: int) -> SendResult:
        """Publish a draft and wait for its answer."""
        began_ns = time.monotonic_ns()
        with self._lock:
            sent = self._publish(draft, waits, deadline_ms, queue_id)
        return self._answer_of(sent, deadline_ms, began_ns)

    def _publish(self, draft: Draft, waits: bool, deadline_ms: int, queue_id: int) -> Sent:
        connection = self._connection
        slot = self._slot((draft.topic, draft.queue_id), deadline_ms)
        if draft.is_plain:
            payload = encoding.hidden(draft.pieces[0])
        else:
            payload = composed.payload_of(draft, lambda queue: self._slot(queue, deadline_ms))
            slot |= drain.COMPOSED
        connection.require_running()
        connection.raise_refusals()
        connection.check_payload(sum(map(len, draft.pieces)), len(payload))
        in_sync_slaves = connection.board.in_sync_slaves.read()
        if waits:
            connection.require_replicas(in_sync_slaves)
        arguments, began_ms = (*connection.outlet, as_bytes(payload), slot), 0
        while (number := int(encoding.put_payload(*arguments))) < 0:
            began_ms = began_ms or wall_clock_ms()
            if not connection.await_room(deadline_ms):
                raise RingFull(connection.ring.path, len(payload), wall_clock_ms() - began_ms)
        length = 0 if draft.holes else len(draft.pieces[0])
        batch = draft.pieces[0] if draft.records > 1 else b""
        return Sent(number, queue_id, length, in_sync_slaves, waits, batch)

    def _slot(self, queue: tuple[str, int], deadline_ms: int) -> int:
        slot = self._slots.get(queue)
        if slot is None:
            slot = self._slots[queue] = self._connection.slot_of(*queue, deadline_ms)  # bounded by the queue table
        return slot

    def _answer_of(self, sent: Sent, deadline_ms: int, began_ns: int) -> SendResult:
        """Wait for the answer to what was sent. Raises MessagesRefused, SendTimeout, BrokerGone."""
        connection, number, is_done, status = self._connection, sent.number, False, PutMessageStatus.PUT_OK
        if not (sent.waits and sent.length):
            status, physical_offset, queue_offset = self._answer_of_any_length(sent, deadline_ms, began_ns)
        else:
            if connection.follows_one and sent.in_sync_slaves >= connection.slaves_needed:
                answer = follow(connection.block, number, sent.length, LIVENESS_NS, began_ns)
                is_done, physical_offset, queue_offset = answer
            if not is_done:
                status, physical_offset, queue_offset = connection.await_status(
                    number, sent.length, sent.in_sync_slaves, deadline_ms, began_ns
                )
        prefix = connection.message_id_prefix
        if not sent.batch:
            return SendResult(status, f"{prefix}{physical_offset:016X}", sent.queue_id, queue_offset, physical_offset)
        ids = ",".join(f"{prefix}{physical_offset + at:016X}" for at in _starts(sent.batch))
        return SendResult(status, ids, sent.queue_id, queue_offset, physical_offset)

    def _answer_of_any_length(
        self, sent: Sent, deadline_ms: int, began_ns: int
    ) -> tuple[PutMessageStatus, int, int]:
        """Of a record whose length only the writer knows (the log's end is behind it), or for which nobody waits."""
        connection, status = self._connection, PutMessageStatus.PUT_OK
        physical_offset, queue_offset = connection.await_place(sent.number, deadline_ms)
        if sent.waits:
            end_offset = connection.board.max_physical_offset.read()
            status = connection.status_of_log(end_offset, sent.in_sync_slaves, deadline_ms)
        connection.clock.stop(began_ns)
        return status, physical_offset, queue_offset

    # op messages

    def _put_op(self, queue_id: int, offsets: str, facts: Facts, deadline_ms: int) -> None:
        now_ms = wall_clock_ms()
        self._put_stored(op_message(queue_id, offsets, facts, now_ms), facts, now_ms, deadline_ms, queue_id)

    def _add_op(self, queue_id: int, offsets: str, now_ms: int) -> None:
        with self._ops_changed:
            self._ops.add(queue_id, offsets, now_ms)
            pending = self._ops.due(now_ms)
            if self._ops_thread is None:
                self._ops_thread = threading.Thread(target=self._write_due_ops, name="ops", daemon=True)
                self._ops_thread.start()
            self._ops_changed.notify()
        for of_queue, text in pending:
            self._put_op(of_queue, text, self._connection.facts.current(), self._deadline(None))

    def _write_due_ops(self) -> None:
        """The thread of TransactionalOpBatchService: ends with the producer, or with its broker."""
        while not self._is_closed:
            with self._ops_changed:
                next_ms = self._ops.next_due_ms()
                self._ops_changed.wait(None if next_ms is None else max(0, next_ms - wall_clock_ms()) / 1000)
                pending = [] if self._is_closed else self._ops.due(wall_clock_ms())
            try:
                for queue_id, offsets in pending:
                    self._put_op(queue_id, offsets, self._connection.facts.current(), self._deadline(None))
            except EngineError:
                return  # the broker is gone; halves without an op message are asked about again

    def _close_ops(self) -> None:
        """Write what is pending, end the thread."""
        try:
            self.write_ops()
        finally:
            with self._ops_changed:
                self._is_closed = True
                self._ops_changed.notify()
            if self._ops_thread is not None:
                self._ops_thread.join()


def _waits(stored: Stored) -> bool:
    """MessageExt.isWaitStoreMsgOK: whether its client waits for more than that it is appended."""
    return stored.fields.get(WAIT, "true").lower() == "true"


def _starts(records: bytes) -> Iterator[int]:
    """Where each of several records begins."""
    at = 0
    while at < len(records):
        yield at
        at += int.from_bytes(records[at : at + 4], "big")
