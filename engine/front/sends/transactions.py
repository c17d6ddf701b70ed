"""Ends of transactions as producers say them (37): the committed message, and an op message for each half.

Implements: EndTransactionProcessor, TransactionalMessageServiceImpl.deletePrepareMessage (spec: store-formats, 8)
A half message is done with only once its op message is in the log: one that was not taken is written again, by the
front that comes after this one, if need be. Each transaction is ended once, whichever fronts hear of it, and however
often; RocketMQ writes its message once for every copy of its half message. A commit is noted before its message is
published, with the number that it gets in the ring: a front that comes after a dead one learns from there whether the
message is in the log. Of what runs before this one have decided, the log is asked. A decision that is under way is not
doubted: who says another one meanwhile is heard once the broker asks again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from engine.front.sends import counting
from engine.front.sends.front_ring import PutOutcome
from engine.front.sends.put_tasks import PutTasks
from engine.front.sends.task import OnPut, Task
from engine.net.log_lines import Seldom
from engine.producer.pipeline import Busy
from engine.protocol.ha.put_status import PutMessageStatus
from engine.protocol.remoting.answers import NO_REMARK, Refused
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.sending.end_transaction import (
    ENDED,
    ENDING,
    Decision,
    check_half,
    end_answer,
    end_header,
    on_slave,
    transaction_of,
)
from engine.services.decided_halves import CommitsInLog
from engine.shared_memory.decided_table import NOTHING, DecidedJournal, DecidedRow, DecidedTable, State
from ipc.clock import monotonic_ms, wall_ms
from store.errors import InvalidMessage, PropertiesTooLarge
from store.message.record import Message
from store.put.draft import draft_of
from store.put.op_batches import OpBatches
from store.put.request import to_log
from store.put.resend import OP_SEPARATOR, committed, op_message, op_offsets


class OwnRing(Protocol):
    """The ring into which this front publishes."""

    @property
    def ring_number(self) -> int:
        """Return the number of this front's ring."""

    def is_in_log(self, number: int) -> bool | None:
        """Whether what was published under this number is in the log; None: that is not known yet."""


class Decisions:
    """Decided transactions as one front knows them; `others` are the tables of the other fronts."""

    def __init__(self, journal: DecidedJournal, others: Sequence[DecidedTable], ring: OwnRing) -> None:
        self._journal, self._others, self._ring = journal, others, ring
        journal.claim(ring.ring_number)
        self._unsettled = {row.place: row.number for row in journal.rows() if row.state is State.COMMITTING}
        self._due = {row.half: row.place for row in journal.rows() if row.half != NOTHING}
        self.left_halves = list(self._due)  # whose op messages a front before us did not write

    def of(self, key: bytes) -> State | None:
        """Return the state of a transaction; None: undecided."""
        state = self._journal.state_of(key)
        return self._of_others(key) if state is None else state

    def _of_others(self, key: bytes) -> State | None:
        states = (table.state_of(key) for table in self._others)
        return next((state for state in states if state is not None), None)

    # a commit

    def begin(self, key: bytes) -> int | None:
        """Note a commit and return its place; None where another front was faster."""
        place = self._journal.make(key, State.COMMITTING)
        if self._of_others(key) is None:
            return place
        self._journal.drop(place)
        return None

    def publishes(self, place: int, number: int) -> None:
        """Note the number under which the message is published next; NOTHING: it was not published."""
        self._journal.set(place, DecidedRow.NUMBER, number)

    def was_put(self, key: bytes) -> None:
        """A run before has put its message."""
        self._journal.make(key, State.COMMITTED)

    def is_put(self, place: int) -> None:
        """Note that the transaction's message is in the log."""
        self._journal.set(place, DecidedRow.STATE, State.COMMITTED)

    def is_not_put(self, place: int) -> None:
        """Forget a transaction whose message was not put and will not be."""
        self._journal.drop(place)

    def is_unknown(self, place: int, number: int) -> None:
        """The writer has said nothing of its message: `turn` goes on with it."""
        self._unsettled[place] = number

    @property
    def is_unsettled(self) -> bool:
        """Whether `turn` has something to go on with."""
        return bool(self._unsettled)

    def turn(self) -> None:
        """Find out what became of messages whose put had no outcome yet."""
        for place, number in list(self._unsettled.items()):
            is_in_log = number != NOTHING and self._ring.is_in_log(number)
            if is_in_log is None:
                continue
            del self._unsettled[place]
            if is_in_log:
                self.is_put(place)
            else:
                self.is_not_put(place)

    # a rollback, and op messages

    def roll_back(self, key: bytes) -> None:
        """Note that the transaction is rolled back."""
        self._journal.make(key, State.ROLLED_BACK)

    def op_is_due(self, key: bytes, half: int) -> None:
        """Note that the op message of a half message has to be written."""
        place = self._journal.place_of(key)
        if place is not None:
            self._journal.set(place, DecidedRow.HALF, half)
            self._due[half] = place

    def op_is_written(self, half: int) -> None:
        """Note that the op message of this half message is written."""
        place = self._due.pop(half, None)
        if place is not None:
            self._journal.set(place, DecidedRow.HALF, NOTHING)

    def close(self) -> None:
        """Unmap this front's table and the others'."""
        for table in (self._journal, *self._others):
            table.close()


log = logging.getLogger("slipstream.front")

OPS_KEPT_MAX = 65_536  # op messages that wait to be written again
HALF_QUEUE = 0  # there is no other
Op = tuple[int, str]  # queue of the halves, their offsets


class TransactionEnds:
    """Ends of transactions that reach one front."""

    def __init__(self, tasks: PutTasks) -> None:
        self._tasks, config = tasks, tasks.config
        self._batches = OpBatches(
            bytes_max=config.transaction_op_msg_max_bytes, interval_ms=config.transaction_op_batch_interval_ms
        )
        self._again: deque[Op] = deque()
        self._seldom = Seldom(log)
        self._decisions: Decisions | None = None
        self._log = CommitsInLog(config, tasks.counters)
        if tasks.decided is not None and tasks.ring is not None:
            context, fronts = tasks.context, range(config.front_processes)
            others = [
                DecidedTable.attach(tasks.counters.directory, front) for front in fronts if front != context.number
            ]
            self._decisions = Decisions(tasks.decided, others, tasks.ring)
            for half in self._decisions.left_halves:
                self._note_op(HALF_QUEUE, half)

    def begin(self, task: Task) -> None:
        """A request. Raises Refused, Thrown."""
        header, tasks = end_header(task.request), self._tasks
        if tasks.is_slave:
            raise on_slave()
        if header.is_asked or header.decision is not Decision.COMMIT:
            self._seldom.tell(
                "a producer of %s says %s of the half message at %s",
                header.producer_group,
                header.decision.name,
                header.half_physical_offset,
                level=logging.DEBUG,
            )
        if header.decision is Decision.PENDING:
            tasks.finish(task, None)
            return
        half = check_half(
            None if header.half_physical_offset is None else tasks.message_at(header.half_physical_offset),
            header,
            task.now_ms,
            timeout_ms=tasks.config.transaction_timeout_ms,
            rejects_late=tasks.line.put.rejects_late_ends,
        )
        self._end(task, half, header.decision)

    def _end(self, task: Task, half: Message, decision: Decision) -> None:
        """End a transaction as the producer says, or as it was ended before. Raises Refused."""
        assert self._decisions is not None, "a slave ends none"
        key = transaction_of(half)
        state = self._decisions.of(key)
        if state is None and self._is_committed_before(half, key, self._decisions):
            state = State.COMMITTED
        if state is State.COMMITTING:
            raise Refused(ResponseCode.SYSTEM_BUSY, ENDING)
        is_commit = decision is Decision.COMMIT
        if state is None and is_commit:
            self._commit(task, half, key, self._decisions)
            return
        if state is None:
            self._decisions.roll_back(key)
            counting.note_rolled_back(self._tasks.context.counts, half)
        elif is_commit is not (state is State.COMMITTED):
            self._remove(None, half, key, None)
            raise Refused(ResponseCode.ILLEGAL_OPERATION, ENDED)
        self._remove(task, half, key, None if is_commit else NO_REMARK)

    def _is_committed_before(self, half: Message, key: bytes, decisions: Decisions) -> bool:
        """Return whether an earlier run committed the transaction. Raises Refused while that is not known yet."""
        if not self._log.is_of_a_run_before(half):
            return False
        if not self._log.is_known:
            raise Refused(ResponseCode.SYSTEM_BUSY, ENDING)
        if not self._log.has(half, key):
            return False
        decisions.was_put(key)
        return True

    def _commit(self, task: Task, half: Message, key: bytes, decisions: Decisions) -> None:
        tasks, facts = self._tasks, self._tasks.settings.now()
        try:
            stored = committed(half, facts)
            draft = draft_of(to_log(stored, facts), facts)
        except (PropertiesTooLarge, InvalidMessage) as invalid:
            answer = end_answer(tasks.status_of(invalid), tasks.config.max_message_bytes)
            tasks.say(task, answer.code, answer.remark)
            return
        place = decisions.begin(key)
        if place is None:
            raise Refused(ResponseCode.SYSTEM_BUSY, ENDING)

        def done(outcome: PutOutcome) -> None:
            if outcome.status.is_stored:
                decisions.is_put(place)
                counting.note_committed(tasks.context.counts, half, stored)
                self._remove(task, half, key, None)
                return
            if outcome.status is PutMessageStatus.UNKNOWN_ERROR and outcome.number != NOTHING:
                decisions.is_unknown(place, outcome.number)
            else:
                decisions.is_not_put(place)
            answer = end_answer(outcome.status, tasks.config.max_message_bytes)
            tasks.say(task, answer.code, answer.remark)

        try:
            tasks.put(
                task,
                draft,
                waits=stored.waits,
                queue_id=stored.queue_id,
                limit_ms=tasks.config.wait_in_transaction_queue_ms,
                on_put=OnPut(
                    done,
                    expired=lambda: decisions.is_not_put(place),
                    number=lambda number: decisions.publishes(place, number),
                    note=partial(counting.note_not_sent, tasks.context.counts, draft),
                ),
            )
        except Busy:
            decisions.is_not_put(place)
            raise

    def _remove(self, task: Task | None, half: Message, key: bytes, remark: str | None) -> None:
        """Note that the half is done with; the producer is answered once that is written, or will be with others."""
        facts = self._tasks.settings.now()
        assert self._decisions is not None, "a slave ends none"
        self._decisions.op_is_due(key, half.queue_offset)
        if facts.policy.ops_in_batches:
            self._note_op(half.queue_id, half.queue_offset)
            self._write_due()
            if task is not None:
                self._tasks.say(task, ResponseCode.SUCCESS, remark)
        else:
            self._write((half.queue_id, op_offsets(half.queue_offset, facts)), task, remark)

    def _note_op(self, queue_id: int, half: int) -> None:
        facts = self._tasks.settings.now()
        offsets = op_offsets(half, facts)
        if facts.policy.ops_in_batches:
            self._batches.add(queue_id, offsets, monotonic_ms())
        else:
            self._try_again((queue_id, offsets))

    def _write(self, op: Op, task: Task | None = None, remark: str | None = None) -> None:
        tasks, facts = self._tasks, self._tasks.settings.now()
        stored = op_message(*op, facts, wall_ms())
        draft = draft_of(to_log(stored, facts), facts)

        def answer() -> None:
            if task is not None:
                tasks.say(task, ResponseCode.SUCCESS, remark)

        def done(outcome: PutOutcome) -> None:
            if outcome.status.is_stored:
                self._is_written(op)
            else:
                self._try_again(op)
            answer()

        def expired(_waited_ms: int) -> None:
            self._try_again(op)
            answer()

        assert tasks.ring is not None, "a slave ends none"
        try:
            tasks.ring.put(
                draft,
                waits=stored.waits,
                queue_id=stored.queue_id,
                on_done=done,
                on_expired=expired,
                limit_ms=tasks.config.wait_in_transaction_queue_ms,
            )
        except Busy:
            expired(0)

    def _is_written(self, op: Op) -> None:
        assert self._decisions is not None, "a slave ends none"
        for offset in op[1].split(OP_SEPARATOR):
            if offset:
                self._decisions.op_is_written(int(offset))

    def _try_again(self, op: Op) -> None:
        if len(self._again) < OPS_KEPT_MAX:
            self._again.append(op)
        else:
            self._seldom.tell("an op message was given up: producers will be asked again about its half messages")

    def _write_due(self) -> None:
        for op in self._batches.due(monotonic_ms()):
            self._write(op)

    @property
    def is_at_rest(self) -> bool:
        """Whether no op message is to be written, and of no transaction is it open what became of it."""
        if self._decisions is None:
            return True
        is_written = not self._again and self._batches.next_due_ms() is None
        return is_written and not self._decisions.is_unsettled

    def turn(self, _now_ms: int) -> None:
        """Write what is due, and again what was not taken."""
        if self._decisions is None:
            return
        self._decisions.turn()
        self._write_due()
        for _ in range(len(self._again)):
            self._write(self._again.popleft())

    def close(self) -> None:
        """Publish what is pending; the writer, which ends later, appends it."""
        if self._decisions is not None:
            for op in self._batches.due(monotonic_ms(), all_of_them=True):
                self._write(op)
            self._decisions.close()
