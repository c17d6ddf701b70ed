"""Whether a send's topic is there and takes it; one that brokers make on the way is asked for.

Implements: SendMessageProcessor.preSend, AbstractSendMessageProcessor.msgCheck
"""

from __future__ import annotations

from collections.abc import Callable

from engine.front.connections.relay import Json
from engine.front.sends.send_processor import SendProcessor
from engine.front.sends.task import Task
from engine.protocol.ha.put_status import PutMessageStatus
from engine.protocol.sending import checks
from engine.protocol.sending.headers import SendHeader

OnTopic = Callable[[SendHeader, Json], None]  # with the header, its queue chosen, and the topic


class TopicChecks:
    """Checks of one front. A refusal has the fields that every answer to a send has."""

    def __init__(self, processor: SendProcessor) -> None:
        self._processor = processor

    def check(self, task: Task, header: SendHeader, on_topic: OnTopic) -> None:
        """Call `on_topic` with the header, its queue chosen, and the topic, once all is well. Raises Refused."""
        processor, topics = self._processor, self._processor.context.tables.topics
        checks.check_time(processor.broker, task.now_ms)
        topic = checks.check_name(processor.broker, header, topics, processor.counters.broker_permission.read())
        config = topics.get(topic)
        if config is not None:
            self._go_on(task, header, config, on_topic)
        elif processor.is_slave:  # it makes none
            processor.say_status(task, PutMessageStatus.SERVICE_NOT_AVAILABLE)
        else:
            checks.check_to_make(processor.broker, header)
            fields = {
                "topic": topic,
                "defaultTopic": header.default_topic,
                "queueNums": header.default_topic_queue_nums or 0,
                "sysFlag": checks.unit_flag(header),
                "remote": _producer(task),
            }
            processor.questions.ask(
                task, "ensure_topic", topic, fields, lambda answer: self._made(task, header, answer, on_topic)
            )

    def _made(self, task: Task, header: SendHeader, answer: Json, on_topic: OnTopic) -> None:
        with self._processor.guarded(task, self._processor.common):
            if "config" not in answer:
                raise checks.topic_missing(self._processor.broker, str(header.topic))
            self._go_on(task, header, answer["config"], on_topic)

    def _go_on(self, task: Task, header: SendHeader, topic: Json, on_topic: OnTopic) -> None:
        """Check the queue id, draw one where it is negative, and call `on_topic`."""
        checks.check_queue_id(self._processor.broker, header, topic, _producer(task))
        if header.queue_id < 0:
            header = header._replace(queue_id=self._processor.drawn_queue(topic["writeQueueNums"]))
        on_topic(header, topic)


def _producer(task: Task) -> str:
    """Return the producer's address as Java writes it."""
    return f"{task.peer.address.ip}:{task.peer.address.port}"
