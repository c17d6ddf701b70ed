"""Requests other than sends that become messages: those given back (36), replies (324, 325), offsets that were moved.

Implements: AbstractSendMessageProcessor.consumerSendMsgBack, ReplyMessageProcessor (spec: remoting, 7),
    PullMessageProcessor.generateOffsetMovedEvent
Nobody waits for the message that tells of a moved offset: one that the log refuses is dropped, as there; one that found
no room is tried again.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from engine.front.connections.relay import Json
from engine.front.sends import counting
from engine.front.sends.front_ring import PutOutcome
from engine.front.sends.put_tasks import PutTasks
from engine.front.sends.task import OnPut, Task
from engine.front.sends.topic_checks import TopicChecks
from engine.producer.pipeline import Busy
from engine.protocol.ha.put_status import PutMessageStatus
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.sending import answers, checks, reply, send_back, topics
from engine.protocol.sending.checks import check_whole
from engine.protocol.sending.headers import SendHeader, attempts_max, send_header
from engine.protocol.sending.reply import PushResult
from engine.protocol.sending.send_back import SendBackHeader
from ipc.clock import wall_ms
from store.errors import InvalidMessage, PropertiesTooLarge
from store.message.properties import PUSH_REPLY_TIME, REPLY_TO_CLIENT
from store.message.topics import DEAD_PREFIX
from store.put.draft import draft_of
from store.put.events import MovedOffset, offset_moved
from store.put.policy import parse_properties, property_text
from store.put.request import Stored, reserved_removed, to_log
from store.put.resend import SendBack, sent_back


class SendBacks:
    """Messages given back through one front."""

    def __init__(self, tasks: PutTasks) -> None:
        self._tasks = tasks

    def begin(self, task: Task) -> None:
        """A request. Raises Refused, Thrown."""
        header = send_back.send_back_header(task.request)
        tasks = self._tasks
        config = tasks.context.tables.groups.get(header.group)
        if config is not None:
            self._with_group(task, header, config)
        else:
            fields = {"group": header.group}
            tasks.questions.ask(
                task,
                "ensure_group",
                header.group,
                fields,
                lambda answer: self._with_group(task, header, answer.get("config")),
            )

    def _with_group(self, task: Task, header: SendBackHeader, group: Json | None) -> None:
        tasks = self._tasks
        if group is None:
            raise checks.group_missing(tasks.broker, header.group)
        if not tasks.counters.broker_permission.read() & checks.PERM_WRITE:
            raise checks.forbidden(tasks.broker)
        if group["retryQueueNums"] <= 0:
            tasks.say(task)
            return
        question = send_back.retry_topic(header, group["retryQueueNums"])
        self._with_topic(task, question, lambda topic: self._back(task, header, group, topic))

    def _with_topic(self, task: Task, question: Json, then: Callable[[Json], None]) -> None:
        tasks, name = self._tasks, question["topic"]
        config = tasks.context.tables.topics.get(name)
        if config is not None:
            then(config)
        elif tasks.is_slave:  # it makes none
            self._say_status(task, PutMessageStatus.SERVICE_NOT_AVAILABLE)
        else:

            def made(answer: Json) -> None:
                if "config" not in answer:
                    raise send_back.topic_missing(name)
                then(answer["config"])

            tasks.questions.ask(task, "ensure_back_topic", name, question, made)

    def _back(self, task: Task, header: SendBackHeader, group: Json, topic: Json) -> None:
        tasks = self._tasks
        send_back.check_retry_topic(topic)
        if header.offset is None:
            raise send_back.lacks("offset", tasks.line)
        message = tasks.message_at(header.offset)
        if message is None:
            raise send_back.message_missing(header.offset)
        if header.delay_level is None:
            raise send_back.lacks("delayLevel", tasks.line)
        asked = SendBack(
            group=header.group,
            delay_level=header.delay_level,
            max_reconsume_times=attempts_max(task.request, header.max_reconsume_times, group["retryMaxTimes"]),
            queue_id=tasks.drawn_queue(group["retryQueueNums"]),
        )
        try:
            stored = sent_back(message, asked, tasks.settings.now())
        except InvalidMessage as invalid:
            self._say_status(task, tasks.status_of(invalid))
            return
        if stored.topic.startswith(DEAD_PREFIX):
            origin = (task.request.ext_fields or {}).get("originTopic", "")
            counting.note_dead(tasks.context.counts, header.group, origin)
            question = send_back.dead_topic(stored.topic, topics.DEAD_QUEUES)
            self._with_topic(task, question, lambda _topic: self._put(task, stored))
        else:
            self._put(task, stored)

    def _put(self, task: Task, stored: Stored) -> None:
        tasks, facts = self._tasks, self._tasks.settings.now()
        try:
            draft = draft_of(to_log(stored, facts), facts)
        except (PropertiesTooLarge, InvalidMessage) as invalid:
            self._say_status(task, tasks.status_of(invalid))
            return

        def done(outcome: PutOutcome) -> None:
            self._say_status(task, outcome.status)

        tasks.put_stored(task, stored, draft, OnPut(done))

    def _say_status(self, task: Task, status: PutMessageStatus) -> None:
        if status is PutMessageStatus.PUT_OK:
            self._tasks.say(task)
        else:
            name = send_back.status_name(status, self._tasks.line.put)
            self._tasks.say(task, ResponseCode.SYSTEM_ERROR, name)


CALL_LIMIT_MS = 12_000  # Broker2Client.callClient waits for ten seconds


class Replies:
    """Replies that one front receives."""

    def __init__(self, tasks: PutTasks, topics: TopicChecks) -> None:
        self._tasks, self._topics = tasks, topics

    def begin(self, task: Task) -> None:
        """A request. Raises Refused, Thrown."""
        header = send_header(task.request)
        check_whole(self._tasks.broker, header, len(task.request.body))
        with self._tasks.guarded(task, self._tasks.common):
            self._topics.check(task, header, lambda checked, _topic: self._push(task, header, checked.queue_id))

    def _push(self, task: Task, header: SendHeader, queue_id: int) -> None:
        tasks, facts = self._tasks, self._tasks.settings.now()
        properties = reserved_removed(header.properties, facts)
        fields = parse_properties(facts.policy, properties)
        client_id = fields.get(REPLY_TO_CLIENT)
        stored = Stored(
            topic=str(header.topic),
            queue_id=queue_id,
            body=bytes(task.request.body),
            properties=properties,
            fields=fields.copy(),
            flag=header.flag,
            born_timestamp_ms=header.born_timestamp_ms,
            born_host=task.peer.address,
            store_host=facts.store_host,
            reconsume_times=header.reconsume_times,
        )
        if client_id is None:
            self._pushed(task, stored, reply.NOT_TOLD_WHOM)
            return
        task.question_limit_ms = CALL_LIMIT_MS
        name = f"{task.peer.number} {task.request.opaque} {task.began_ns}"

        def answered(answer: Json) -> None:
            is_taken = answer.get("code") == ResponseCode.SUCCESS
            self._pushed(task, stored, reply.PUSHED if is_taken else reply.push_failed(client_id))

        def known(answer: Json) -> None:
            if answer.get("channel") is None:
                self._pushed(task, stored, reply.requester_missing(client_id))
                return
            fields.put(PUSH_REPLY_TIME, str(wall_ms()))
            born, own = (f"{host.ip}:{host.port}" for host in (task.peer.address, facts.store_host))
            call = reply.push(header, property_text(facts.policy, fields), born, own, wall_ms())
            call |= {"channel": answer["channel"], "body": base64.b64encode(stored.body).decode()}
            tasks.questions.ask(task, "call", name, call, answered)

        tasks.questions.ask(task, "find_client", name, {"clientId": client_id}, known)

    def _pushed(self, task: Task, stored: Stored, pushed: PushResult) -> None:
        """Keep it, whether somebody took it or not; the answer tells of the push."""
        tasks, facts = self._tasks, self._tasks.settings.now()
        if not tasks.config.store_reply_message_enable:
            self._say(task, stored, pushed, None)
            return
        try:
            draft = draft_of(to_log(replace(stored, fields=stored.fields.copy()), facts), facts)
        except (PropertiesTooLarge, InvalidMessage):
            self._say(task, stored, pushed, None)
            return
        tasks.put_stored(task, stored, draft, OnPut(lambda outcome: self._say(task, stored, pushed, outcome)))

    def _say(self, task: Task, stored: Stored, pushed: PushResult, outcome: PutOutcome | None) -> None:
        fields, capacity = self._tasks.common, self._tasks.fields_capacity(task.request)
        if outcome is not None and outcome.status.is_stored:
            fields = answers.stored_fields(
                fields, outcome.message_id, stored.queue_id, outcome.queue_offset, capacity=capacity
            )
        elif pushed is reply.PUSHED:
            fields = answers.stored_fields(fields, "0", stored.queue_id, 0, capacity=capacity)
        self._tasks.say(task, pushed.code, pushed.remark, fields)


A_TURN, WAITS_MS = 100, 3000


class MovedOffsets:
    """Events of one front; `noted` is what its pulls note, a bounded number."""

    def __init__(self, tasks: PutTasks, noted: deque[MovedOffset]) -> None:
        self._tasks, self._noted = tasks, noted

    def turn(self) -> None:
        """Write at most A_TURN of the noted events."""
        for _ in range(min(A_TURN, len(self._noted))):
            self._write(self._noted.popleft())

    def _write(self, event: MovedOffset) -> None:
        tasks, facts = self._tasks, self._tasks.settings.now()
        if tasks.ring is None:  # a slave's log is its master's
            return
        stored = offset_moved(event, tasks.config.broker_name, facts, wall_ms())
        try:
            draft = draft_of(to_log(stored, facts), facts)
            tasks.ring.put(
                draft,
                waits=False,
                queue_id=stored.queue_id,
                on_done=_passed_over,
                on_expired=lambda _waited_ms: self._noted.append(event),
                limit_ms=WAITS_MS,
            )
        except Busy:
            self._noted.append(event)
        except (InvalidMessage, PropertiesTooLarge):
            return


def _passed_over(_outcome: PutOutcome) -> None:
    """Do nothing: the outcome of such a put is not used."""
