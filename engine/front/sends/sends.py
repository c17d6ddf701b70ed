"""The service of all that clients put: a request is checked, made what is stored, and put; its answer comes after that.

Implements: SendMessageProcessor.processRequest, sendMessage, sendBatchMessage (spec: remoting, 7)
What is checked stands in `engine.protocol.sending`, what is stored in `store.put`; `PutTasks` has the ring,
answers and the bounds. Sends (10, 310, 320) are here; what consumers give back, ends of transactions and replies are
beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from engine.front.connections.pace import NEVER_MS
from engine.front.connections.peer import Peer
from engine.front.connections.relay import Json
from engine.front.connections.service import FrontContext
from engine.front.sends import counting
from engine.front.sends.compiled_sends import compiled_sends
from engine.front.sends.front_ring import PutOutcome
from engine.front.sends.put_tasks import PutTasks
from engine.front.sends.stored_requests import MovedOffsets, Replies, SendBacks
from engine.front.sends.task import OnPut, Task
from engine.front.sends.topic_checks import TopicChecks
from engine.front.sends.transactions import TransactionEnds
from engine.producer.unique_keys import UniqueKeys
from engine.protocol.remoting.answers import Refused, Thrown
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.sending import answers, checks, send_back, topics
from engine.protocol.sending.checks import check_whole
from engine.protocol.sending.headers import SendHeader, attempts_max, send_header
from store.errors import InvalidMessage, PropertiesTooLarge
from store.message.properties import UNIQ_KEY
from store.message.record import SysFlag
from store.message.topics import DEAD_PREFIX, RETRY_PREFIX
from store.put.batch import LARGE, batch_to_log, received_batch
from store.put.draft import Draft, draft_of, draft_of_batch
from store.put.policy import parse_properties
from store.put.request import SendRequest, Stored, is_half, received, to_log

DEAD_AT_ONCE = -1  # as the number of attempts


class Sends:
    """The handlers of all requests that put something into the log, by request code."""

    codes: frozenset[int] = frozenset({
        RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION, RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    })  # fmt: skip

    def __init__(self, context: FrontContext) -> None:
        self.tasks = PutTasks(context)
        self.compiled = compiled_sends(self.tasks, context.received)
        self._unique_keys = UniqueKeys(context.config.broker_ip1)
        self._topics = TopicChecks(self.tasks)
        self._ends = TransactionEnds(self.tasks)
        self._moved = MovedOffsets(self.tasks, context.moved)
        replies = Replies(self.tasks, self._topics)
        self._others: dict[int, Callable[[Task], None]] = {
            RequestCode.CONSUMER_SEND_MSG_BACK: SendBacks(self.tasks).begin,
            RequestCode.END_TRANSACTION: self._ends.begin,
            RequestCode.SEND_REPLY_MESSAGE: replies.begin, RequestCode.SEND_REPLY_MESSAGE_V2: replies.begin,
        }  # fmt: skip

    def begin(self, request: RemotingCommand, peer: Peer, now_ms: int) -> RemotingCommand | None:
        """A request; an answer only where it is refused before it is looked at."""
        try:
            task = self.tasks.admit(request, peer, now_ms)
        except Refused as refused:
            return self.tasks.refusal(request, refused)
        with self.tasks.guarded(task):
            other = self._others.get(request.code)
            if other is not None:
                other(task)
                return None
            header = send_header(request)
            check_whole(self.tasks.broker, header, len(request.body))
            with self.tasks.guarded(task, self.tasks.common):
                self._topics.check(task, header, lambda header, topic: self._checked(task, header, topic))
        return None

    def turn(self, now_ms: int) -> None:
        """Expire what waits too long, and write due op messages and events."""
        self.tasks.turn()
        self._ends.turn(now_ms)
        self._moved.turn()

    def rest_ms(self, _now_ms: int) -> int:
        """Return for how long nothing is due: 0 while something is under way."""
        is_at_rest = self.tasks.is_at_rest and self._ends.is_at_rest and not self.tasks.context.moved
        return NEVER_MS if is_at_rest else 0

    def peer_gone(self, _peer: Peer) -> None:
        """A connection is gone; its tasks end as they come to it."""

    def close(self) -> None:
        """Release the transactions' tables and the ring."""
        self._ends.close()
        self.tasks.close()

    # checks

    def _checked(self, task: Task, header: SendHeader, topic: Json) -> None:
        """The topic is there, and has such a queue."""
        tasks = self.tasks
        name = topic["topicName"]
        if name.startswith(RETRY_PREFIX):
            if header.batch and tasks.line.put.inner_batches:
                remark = f"batch request does not support retry group {name}"
                raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
            if not header.batch:
                self._retry(task, header, name.removeprefix(RETRY_PREFIX))
                return
        self._put(task, header, 0)

    def _retry(self, task: Task, header: SendHeader, group: str) -> None:
        """A message that a consumer gives back by sending it: dead after too many attempts."""
        config = self.tasks.context.tables.groups.get(group)
        if config is not None:
            self._with_group(task, header, group, config)
        else:
            fields = {"group": group}
            self.tasks.questions.ask(
                task,
                "ensure_group",
                group,
                fields,
                lambda answer: self._with_group(task, header, group, answer.get("config")),
            )

    def _with_group(self, task: Task, header: SendHeader, group: str, config: Json | None) -> None:
        with self.tasks.guarded(task, self.tasks.common):
            if config is None:
                raise checks.group_missing(self.tasks.broker, group)
            most = attempts_max(task.request, header.max_reconsume_times, config["retryMaxTimes"])
            if not self.tasks.line.put.retries_orderly_to_dead:
                self._put(task, header, most)
                return
            self.tasks.questions.ask(
                task,
                "has_locks",
                group,
                {"group": group},
                lambda answer: self._put(task, header, DEAD_AT_ONCE if answer.get("has") else most),
            )

    # into the log

    def _put(self, task: Task, header: SendHeader, attempts: int) -> None:
        tasks = self.tasks
        try:
            stored, draft = self._drafted(task, header, attempts)
        except (PropertiesTooLarge, InvalidMessage) as invalid:
            with tasks.guarded(task, tasks.common):
                self._put_invalid(task, invalid)
            return

        def put() -> None:
            tasks.put(
                task,
                draft,
                waits=stored.waits,
                queue_id=header.queue_id,
                limit_ms=tasks.config.wait_in_send_queue_ms,
                on_put=OnPut(
                    lambda outcome: self._put_done(task, stored, outcome),
                    note=partial(counting.note_sent, tasks.context.counts, stored, draft),
                ),
            )

        if stored.topic.startswith(DEAD_PREFIX):
            counting.note_dead(tasks.context.counts, str(header.producer_group), str(header.topic))
        if not stored.topic.startswith(DEAD_PREFIX) or stored.topic in tasks.context.tables.topics or tasks.is_slave:
            put()
            return

        def made(answer: Json) -> None:
            with tasks.guarded(task, tasks.common):
                if "config" not in answer:
                    raise send_back.topic_missing(stored.topic)
                put()

        question = send_back.dead_topic(stored.topic, topics.DEAD_QUEUES)
        tasks.questions.ask(task, "ensure_back_topic", stored.topic, question, made)

    def _drafted(self, task: Task, header: SendHeader, attempts: int) -> tuple[Stored, Draft]:
        """Return what is stored, and its record. Raises Refused, InvalidMessage, PropertiesTooLarge."""
        tasks, facts = self.tasks, self.tasks.settings.now()
        request = SendRequest(
            topic=str(header.topic),
            body=bytes(task.request.body),
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            flag=header.flag,
            born_timestamp_ms=header.born_timestamp_ms,
            born_host=task.peer.address,
            properties=header.properties,
            reconsume_times=header.reconsume_times,
            max_reconsume_times=attempts,
            batch=header.batch,
        )
        if tasks.config.reject_transaction_message and not header.batch:
            fields = parse_properties(facts.policy, request.properties)
            if is_half(fields, request.reconsume_times, facts):
                remark = f"the broker[{tasks.broker.ip}] sending transaction message is forbidden"
                raise Refused(ResponseCode.NO_PERMISSION, remark)
        if header.batch:
            stored = received_batch(request, facts)
            if not stored.sys_flag & SysFlag.INNER_BATCH:
                return stored, draft_of_batch(batch_to_log(stored, facts), facts)
        else:
            unique_key = self._unique_keys.new() if facts.policy.adds_unique_key else ""
            stored = received(request, facts, unique_key)
        return stored, draft_of(to_log(stored, facts), facts)

    def _put_invalid(self, task: Task, invalid: InvalidMessage | PropertiesTooLarge) -> None:
        if getattr(invalid, "field", "") == LARGE and self.tasks.line.put.throws_large_batches:
            raise Thrown("java.lang.RuntimeException: message body size exceeded")
        if thrown := getattr(invalid, "thrown", None):
            raise Thrown(thrown)
        self.tasks.say_status(task, self.tasks.status_of(invalid))

    def _put_done(self, task: Task, stored: Stored, outcome: PutOutcome) -> None:
        tasks = self.tasks
        if not outcome.status.is_stored:
            self.tasks.say_status(task, outcome.status)
            return
        unique_key = stored.fields.get(UNIQ_KEY) if tasks.line.put.adds_unique_key else None
        is_inner = stored.sys_flag & SysFlag.INNER_BATCH and tasks.line.put.inner_batches
        fields = answers.stored_fields(
            tasks.common,
            outcome.message_id,
            outcome.queue_id,
            outcome.queue_offset,
            transaction_id=unique_key,
            batch_key=unique_key if is_inner else None,
            capacity=tasks.fields_capacity(task.request),
        )
        tasks.say(task, tasks.put_answer(outcome.status).code, None, fields)
