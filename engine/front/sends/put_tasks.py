"""What all requests share that put something into the log: admission, the ring, answers, counts.

Implements: AbstractSendMessageProcessor, BrokerFastFailure, NettySystemConfig's bounds,
    NettyRemotingAbstract.processRequestCommand (its refusals), BrokerMetricsManager.getMessageType
A request is a `Task` from its admission to its answer. Nobody waits: a task goes on in callbacks, and `guarded` sees to
it that whatever happens there is an answer.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from engine.front.connections.peer import Peer
from engine.front.connections.service import FrontContext
from engine.front.sends.front_ring import CompiledAnswers, FrontRing, PutOutcome
from engine.front.sends.put_settings import PutSettings
from engine.front.sends.questions import Questions
from engine.front.sends.task import OnPut, Task
from engine.net.log_lines import Seldom
from engine.producer.pipeline import Busy
from engine.protocol.ha.put_status import PutMessageStatus
from engine.protocol.remoting.answers import FAILED, Answerer, Refused
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand, Serialize
from engine.protocol.sending import answers
from engine.protocol.sending.checks import SendingBroker, drawn_queue
from engine.settings.config import BrokerRole
from engine.shared_memory.decided_table import DecidedJournal
from ipc import waiting
from ipc.clock import monotonic_ms, wall_ms
from store.errors import InvalidMessage, PropertiesTooLarge
from store.files.segment_files import SegmentFiles
from store.message.properties import MSG_REGION, TRACE_ON
from store.message.record import Message, decode
from store.put.draft import Draft
from store.put.request import TIMER, Stored
from store.reading.index_search import LogRecords
from store.reading.queue_view import LogLimits

log = logging.getLogger("slipstream.front")

REJECTABLE = frozenset({
    RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
})  # fmt: skip
SHARE_OF_ONE = 2  # one connection may have half of what all may have


class CompiledPuts(CompiledAnswers, Protocol):
    """Compiled sends that share the ring and the limits: what is under way, in all and for each connection."""

    @property
    def puts(self) -> int:
        """Return how many messages are under way."""

    @property
    def bytes(self) -> int:
        """Return how many bytes are under way."""

    def of_peer(self, peer: Peer) -> tuple[int, int] | None:
        """Return what is under way of a connection, tasks too; None where it has no place here."""

    def charge(self, peer: Peer, requests: int, size: int) -> None:
        """Add tasks and bytes to those under way of a connection; negative numbers take them off."""

    def turn(self, now_ms: int) -> None:
        """Look at the clock, wall time."""


class PutTasks(Answerer):
    """Tasks of one front: requests that put something into the log, until they are answered.

    All that handles a request has this object, with the settings, the ring and the limits that they share.
    """

    def __init__(self, context: FrontContext) -> None:
        config = context.config
        super().__init__(config.compat)
        self.context, self.config, self.counters, self.words = context, config, context.counters, context.words
        self.is_slave = config.broker_role is BrokerRole.SLAVE
        self.broker = SendingBroker(
            self.line, config.broker_ip1, config.accepts_sends_from_ms, config.max_message_bytes
        )
        self.settings = PutSettings(config, context.tables)
        self.common = {TRACE_ON: str(config.trace_on).lower(), MSG_REGION: config.region_id}
        self.decided: DecidedJournal | None = None
        self.ring: FrontRing | None = None
        if not self.is_slave:
            self.decided = DecidedJournal.attach(context.counters.directory, context.number)
            wanted_ring = self.decided.ring  # the one of the front before us: what it published there is looked at
            self.ring = FrontRing(config, context.counters, context.loop, None if wanted_ring < 0 else wanted_ring)
        self._compiled: CompiledPuts | None = None  # fast sends, which do not come here
        self._tasks: dict[Task, None] = {}  # in the order of their arrival
        self._bytes = self._ends = 0
        self._of_peer: dict[int, tuple[int, int]] = {}  # requests and bytes of those that have tasks
        self.questions = Questions(context.relay, self.guarded)
        self._random = random.Random()
        files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
        self._records = LogRecords(files, self._limits)
        self._seldom = Seldom(log)

    def _limits(self) -> LogLimits:
        return LogLimits(self.counters.min_physical_offset.read(), self.counters.max_physical_offset.read())

    def share(self, compiled: CompiledPuts) -> None:
        """Let compiled sends publish into the ring; the limits of what is under way count theirs, too."""
        assert self.ring is not None, "a slave has no ring"
        self._compiled = compiled
        self.ring.share(compiled)

    # in and out

    def admit(self, request: RemotingCommand, peer: Peer, now_ms: int) -> Task:
        """Begin with a request. Raises Refused where it is one too many."""
        refusal = self._refusal(request)
        if refusal is None:
            size = request.cost
            limits = self.config.send_queue_capacity, self.config.send_bytes_in_flight_max
            is_too_much = len(self._tasks) >= limits[0] or self._bytes + size > limits[1]
            if is_too_much or any(
                has + more > max(1, limit // SHARE_OF_ONE) and has
                for has, more, limit in zip(self._under_way(peer), (1, size), limits, strict=True)
            ):
                refusal = answers.OVERLOADED
        if refusal is not None:
            waiting.add(self.words.sends_refused, 1)
            raise Refused(ResponseCode.SYSTEM_BUSY, refusal)
        task = Task(request, peer, now_ms, time.monotonic_ns(), size)
        self._tasks[task] = None
        self._ends += request.code == RequestCode.END_TRANSACTION
        self._charge(peer, 1, size)
        return task

    def _under_way(self, peer: Peer) -> tuple[int, int]:
        """Requests of a connection, and their bytes."""
        of_peer = None if self._compiled is None else self._compiled.of_peer(peer)
        return self._of_peer.get(peer.number, (0, 0)) if of_peer is None else of_peer

    def _charge(self, peer: Peer, requests: int, size: int) -> None:
        self._bytes += size
        has = self._of_peer.get(peer.number, (0, 0))
        if has[0] + requests:
            self._of_peer[peer.number] = has[0] + requests, has[1] + size
        else:
            self._of_peer.pop(peer.number, None)
        if self._compiled is not None:
            self._compiled.charge(peer, requests, size)

    def _refusal(self, request: RemotingCommand) -> str | None:
        """rejectRequest: of what a broker refuses before it looks at it."""
        if not self.context.tables.is_complete:
            return answers.REJECTED
        if request.code not in REJECTABLE:
            return None
        if self.is_slave:
            return answers.REJECTED if self.line.broker.slaves_reject_sends else None
        return answers.REJECTED if self.is_store_busy() else None

    def is_store_busy(self) -> bool:
        """isOSPageCacheBusy: the log has taken nothing for that long, and something waits for it."""
        if self.ring is None:
            return False
        return self.ring.pipeline.writer_waits_ms(time.monotonic_ns()) > self.config.page_cache_busy_timeout_ms

    def finish(self, task: Task, answer: RemotingCommand | None) -> None:
        """Answer a task, once; None: it has none."""
        if task.is_answered:
            return
        task.is_answered = True
        del self._tasks[task]
        self._ends -= task.request.code == RequestCode.END_TRANSACTION
        self._charge(task.peer, -1, -task.size)
        if answer is not None:
            self.context.counts.answered(task.request, answer.code, task.began_ns)
            self.context.answer(task.peer, task.request, answer)

    def say(
        self,
        task: Task,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        """Answer a task with a code, a remark and fields."""
        self.finish(task, self.answered(task.request, code, remark, fields))

    @contextmanager
    def guarded(self, task: Task, fields: Mapping[str, str] | None = None) -> Iterator[None]:
        """Whatever is raised within is the task's answer; `fields` go with a refusal."""
        try:
            yield
        except Refused as refused:
            answer = self.refusal(task.request, refused)
            if fields is not None and type(refused) is Refused:
                answer = self.answered(task.request, refused.code, refused.remark, fields)
            self.finish(task, answer)
        except self.REFUSALS as malformed:
            self.finish(task, self.refusal(task.request, malformed))
        except Busy:
            self._busy(task, answers.OVERLOADED)
        except Exception:  # ours, which must not end the front
            self._seldom.tell("a request failed: code %d", task.request.code, level=logging.ERROR, error=True)
            self.say(task, ResponseCode.SYSTEM_ERROR, FAILED)

    def drawn_queue(self, queues: int) -> int:
        """Draw one of so many queues. Raises Thrown where there are none."""
        return drawn_queue(self._random.getrandbits(31), queues)

    # puts

    def put_stored(self, task: Task, stored: Stored, draft: Draft, on_put: OnPut) -> None:
        """Put a message that is stored for a task, under the limit of sends. Raises Busy."""
        limit_ms = self.config.wait_in_send_queue_ms
        self.put(task, draft, waits=stored.waits, queue_id=stored.queue_id, limit_ms=limit_ms, on_put=on_put)

    def put(
        self,
        task: Task,
        draft: Draft,
        *,
        waits: bool,
        queue_id: int,
        limit_ms: int,
        on_put: OnPut,
    ) -> None:
        """Put a draft for a task. Raises Busy."""
        if self.ring is None:  # a slave's log is its master's
            on_put.done(PutOutcome(PutMessageStatus.SERVICE_NOT_AVAILABLE, -1, -1, "", queue_id))
            return

        def done(outcome: PutOutcome) -> None:
            self.context.counts.put(task.began_ns)
            if outcome.status.is_stored:
                waiting.add(self.words.sends, draft.records)
            else:
                on_put.note(-1)
            with self.guarded(task):
                on_put.done(outcome)

        def expired(waited_ms: int) -> None:
            text = answers.STORE_BUSY if self.is_store_busy() else answers.TIMED_OUT
            self._busy(task, text.format(waited_ms, self.parked_puts))
            on_put.note(-1)
            on_put.expired()

        on_put.note(1)
        try:
            self.ring.put(
                draft,
                waits=waits,
                queue_id=queue_id,
                on_done=done,
                limit_ms=limit_ms,
                on_expired=expired,
                on_number=on_put.number,
            )
        except Busy:
            on_put.note(-1)
            raise

    @property
    def parked_puts(self) -> int:
        """Return the number of puts that are not in the ring."""
        return 0 if self.ring is None else self.ring.pipeline.parked_puts

    def put_answer(self, status: PutMessageStatus) -> answers.PutAnswer:
        """Return the response code and remark of a status."""
        return answers.put_answer(status, self.broker, self.counters.disk_used_percent.read())

    def fields_capacity(self, request: RemotingCommand) -> int | None:
        """Return the capacity of the map that orders an answer's fields; None: its own precede the common ones."""
        rules = self.line.remoting
        is_binary = request.serialize is Serialize.ROCKETMQ and not rules.answers_in_json
        return None if is_binary else rules.added_fields_capacity

    def say_status(self, task: Task, status: PutMessageStatus) -> None:
        """Answer the sender of what was not stored."""
        answer = self.put_answer(status)
        self.say(task, answer.code, answer.remark, self.common)

    def status_of(self, error: Exception) -> PutMessageStatus:
        """Return the status for a message that the store's rules refuse. Raises any other error."""
        if isinstance(error, PropertiesTooLarge):
            return PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
        if isinstance(error, InvalidMessage):
            is_timer = error.field == TIMER
            return PutMessageStatus.WHEEL_TIMER_NOT_ENABLE if is_timer else PutMessageStatus.MESSAGE_ILLEGAL
        raise error

    def message_at(self, physical_offset: int) -> Message | None:
        """lookMessageByOffset: the message that begins there; None where none does."""
        record = self._records.at(physical_offset)
        return None if record is None else decode(record, 0)

    def _busy(self, task: Task, remark: str) -> None:
        waiting.add(self.words.sends_refused, 1)
        self.say(task, ResponseCode.SYSTEM_BUSY, remark)

    # time

    def turn(self) -> None:
        """Answer what has come to its time; publish how it goes."""
        if self.ring is not None:
            self.ring.turn()
            self.context.counts.fast_sends(self.ring.pipeline.latencies, monotonic_ms())
            if self.ring.pipeline.parked_puts and self.config.broker_fast_failure_enable:
                self.ring.expire(all_of_them=self.is_store_busy())
        for task, waited_ms, asking in self.questions.overdue():
            self._busy(task, answers.TIMED_OUT.format(waited_ms, asking))
        first, compiled = next(iter(self._tasks), None), self._compiled
        waited_ms = 0 if first is None else first.waited_ms
        if self.ring is not None and compiled is not None:
            compiled.turn(wall_ms())
            waited_ms = max(waited_ms, self.ring.oldest_wait_ms())
            waiting.note(self.words.writer_wait_ms, self.ring.pipeline.writer_waits_ms(time.monotonic_ns()))
        waiting.note(self.words.sends_in_flight, len(self._tasks) + (compiled.puts if compiled else 0))
        waiting.note(self.words.send_wait_ms, waited_ms)
        waiting.note(self.words.ends_in_flight, self._ends)
        waiting.note(self.words.bytes_in_flight, self._bytes + (compiled.bytes if compiled else 0))

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is under way."""
        is_compiled_at_rest = self._compiled is None or not self._compiled.puts
        return not self._tasks and is_compiled_at_rest and (self.ring is None or self.ring.is_at_rest)

    def close(self) -> None:
        """Release the ring and its threads, if the broker has them."""
        if self.ring is not None:
            self.ring.close()
