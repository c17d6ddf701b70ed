"""What is looked at before any message of a client is taken; a topic that is missing is made on the way.

Implements: SendMessageProcessor.preSend, AbstractSendMessageProcessor.msgCheck
"""

from __future__ import annotations

from collections.abc import Callable

from engine.front.sends.send_desk import Json, SendDesk, Task
from engine.protocol.ha.group_transfer import PutMessageStatus
from engine.protocol.sending import checks
from engine.protocol.sending.headers import SendHeader

Then = Callable[[SendHeader, Json], None]


class TopicChecks:
    """Checks of one front. A refusal has the fields that every answer to a send has."""

    def __init__(self, desk: SendDesk) -> None:
        self._desk = desk

    def check(self, task: Task, header: SendHeader, then: Then) -> None:
        """Call `then` with the header, its queue chosen, and the topic, once all is well. Raises Refused."""
        desk, topics = self._desk, self._desk.context.tables.topics
        checks.check_time(desk.broker, task.now_ms)
        topic = checks.check_name(desk.broker, header, topics, desk.board.broker_permission.read())
        config = topics.get(topic)
        if config is not None:
            self._go_on(task, header, config, then)
        elif desk.is_slave:  # it makes none
            desk.say_status(task, PutMessageStatus.SERVICE_NOT_AVAILABLE)
        else:
            checks.check_to_make(desk.broker, header)
            fields = {
                "topic": topic,
                "defaultTopic": header.default_topic,
                "queueNums": header.default_topic_queue_nums or 0,
                "sysFlag": checks.unit_flag(header),
                "remote": _producer(task),
            }
            desk.ask(task, "ensure_topic", topic, fields, lambda answer: self._made(task, header, answer, then))

    def _made(self, task: Task, header: SendHeader, answer: Json, then: Then) -> None:
        with self._desk.guarded(task, self._desk.common):
            if "config" not in answer:
                raise checks.topic_missing(self._desk.broker, str(header.topic))
            self._go_on(task, header, answer["config"], then)

    def _go_on(self, task: Task, header: SendHeader, topic: Json, then: Then) -> None:
        """Check the queue id, draw one where it is negative, and call `then`."""
        checks.check_queue_id(self._desk.broker, header, topic, _producer(task))
        if header.queue_id < 0:
            header = header._replace(queue_id=self._desk.drawn_queue(topic["writeQueueNums"]))
        then(header, topic)


def _producer(task: Task) -> str:
    """Return the producer's address as Java writes it."""
    return f"{task.peer.address.ip}:{task.peer.address.port}"
