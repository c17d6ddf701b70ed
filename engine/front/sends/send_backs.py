"""Messages that consumers give back (36): to be tried again later, or to the group's dead letters.

Implements: AbstractSendMessageProcessor.consumerSendMsgBack (spec: remoting, 7)
"""

from __future__ import annotations

from collections.abc import Callable

from engine.front.sends import kinds
from engine.front.sends.puts import PutOutcome
from engine.front.sends.send_desk import Json, SendDesk, Task, Then
from engine.protocol.ha.group_transfer import PutMessageStatus
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.sending import checks, send_back, topics
from engine.protocol.sending.headers import attempts_max
from engine.protocol.sending.send_back import SendBackHeader
from store.errors import InvalidMessage, PropertiesTooLarge
from store.message.topics import DEAD_PREFIX
from store.put.draft import draft_of
from store.put.request import Stored, to_log
from store.put.resend import SendBack, sent_back


class SendBacks:
    """Messages given back through one front."""

    def __init__(self, desk: SendDesk) -> None:
        self._desk = desk

    def begin(self, task: Task) -> None:
        """A request. Raises Refused, Thrown."""
        header = send_back.send_back_header(task.request)
        desk = self._desk
        config = desk.context.tables.groups.get(header.group)
        if config is not None:
            self._with_group(task, header, config)
        else:
            fields = {"group": header.group}
            desk.ask(
                task,
                "ensure_group",
                header.group,
                fields,
                lambda answer: self._with_group(task, header, answer.get("config")),
            )

    def _with_group(self, task: Task, header: SendBackHeader, group: Json | None) -> None:
        desk = self._desk
        if group is None:
            raise checks.group_missing(desk.broker, header.group)
        if not desk.board.broker_permission.read() & checks.PERM_WRITE:
            raise checks.forbidden(desk.broker)
        if group["retryQueueNums"] <= 0:
            desk.say(task)
            return
        question = send_back.retry_topic(header, group["retryQueueNums"])
        self._with_topic(task, question, lambda topic: self._back(task, header, group, topic))

    def _with_topic(self, task: Task, question: Json, then: Callable[[Json], None]) -> None:
        desk, name = self._desk, question["topic"]
        config = desk.context.tables.topics.get(name)
        if config is not None:
            then(config)
        elif desk.is_slave:  # it makes none
            self._say_status(task, PutMessageStatus.SERVICE_NOT_AVAILABLE)
        else:

            def made(answer: Json) -> None:
                if "config" not in answer:
                    raise send_back.topic_missing(name)
                then(answer["config"])

            desk.ask(task, "ensure_back_topic", name, question, made)

    def _back(self, task: Task, header: SendBackHeader, group: Json, topic: Json) -> None:
        desk = self._desk
        send_back.check_retry_topic(topic)
        if header.offset is None:
            raise send_back.lacks("offset", desk.line)
        message = desk.message_at(header.offset)
        if message is None:
            raise send_back.message_missing(header.offset)
        if header.delay_level is None:
            raise send_back.lacks("delayLevel", desk.line)
        asked = SendBack(
            group=header.group,
            delay_level=header.delay_level,
            max_reconsume_times=attempts_max(task.request, header.max_reconsume_times, group["retryMaxTimes"]),
            queue_id=desk.drawn_queue(group["retryQueueNums"]),
        )
        try:
            stored = sent_back(message, asked, desk.facts.now())
        except InvalidMessage as invalid:
            self._say_status(task, desk.status_of(invalid))
            return
        if stored.topic.startswith(DEAD_PREFIX):
            kinds.note_dead(desk.context.counts, header.group, (task.request.ext_fields or {}).get("originTopic", ""))
            question = send_back.dead_topic(stored.topic, topics.DEAD_QUEUES)
            self._with_topic(task, question, lambda _topic: self._put(task, stored))
        else:
            self._put(task, stored)

    def _put(self, task: Task, stored: Stored) -> None:
        desk, facts = self._desk, self._desk.facts.now()
        try:
            draft = draft_of(to_log(stored, facts), facts)
        except (PropertiesTooLarge, InvalidMessage) as invalid:
            self._say_status(task, desk.status_of(invalid))
            return

        def done(outcome: PutOutcome) -> None:
            self._say_status(task, outcome.status)

        desk.put(
            task,
            draft,
            waits=stored.waits,
            queue_id=stored.queue_id,
            limit_ms=desk.config.wait_in_send_queue_ms,
            then=Then(done),
        )

    def _say_status(self, task: Task, status: PutMessageStatus) -> None:
        if status is PutMessageStatus.PUT_OK:
            self._desk.say(task)
        else:
            name = send_back.status_name(status, self._desk.line.put)
            self._desk.say(task, ResponseCode.SYSTEM_ERROR, name)
