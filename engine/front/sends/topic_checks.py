"""Whether a send's topic is there and takes it; one that brokers make on the way is asked for.

Implements: SendMessageProcessor.preSend, AbstractSendMessageProcessor.msgCheck
"""

from __future__ import annotations

from collections.abc import Callable

from engine.front.connections.relay import Json
from engine.front.sends.put_tasks import PutTasks
from engine.front.sends.task import Task
from engine.protocol.ha.put_status import PutMessageStatus
from engine.protocol.sending import checks
from engine.protocol.sending.headers import SendHeader

OnTopic = Callable[[SendHeader, Json], None]  # with the header, its queue chosen, and the topic


class TopicChecks:
    """Checks of one front. A refusal has the fields that every answer to a send has."""

    def __init__(self, tasks: PutTasks) -> None:
        self._tasks = tasks

    def check(self, task: Task, header: SendHeader, on_topic: OnTopic) -> None:
        """Call `on_topic` with the header, its queue chosen, and the topic, once all is well. Raises Refused."""
        tasks, topics = self._tasks, self._tasks.context.tables.topics
        checks.check_time(tasks.broker, task.now_ms)
        topic = checks.check_name(tasks.broker, header, topics, tasks.counters.broker_permission.read())
        config = topics.get(topic)
        if config is not None:
            self._go_on(task, header, config, on_topic)
        elif tasks.is_slave:  # it makes none
            tasks.say_status(task, PutMessageStatus.SERVICE_NOT_AVAILABLE)
        else:
            checks.check_to_make(tasks.broker, header)
            fields = {
                "topic": topic,
                "defaultTopic": header.default_topic,
                "queueNums": header.default_topic_queue_nums or 0,
                "sysFlag": checks.unit_flag(header),
                "remote": _producer(task),
            }
            tasks.questions.ask(
                task, "ensure_topic", topic, fields, lambda answer: self._made(task, header, answer, on_topic)
            )

    def _made(self, task: Task, header: SendHeader, answer: Json, on_topic: OnTopic) -> None:
        with self._tasks.guarded(task, self._tasks.common):
            if "config" not in answer:
                raise checks.topic_missing(self._tasks.broker, str(header.topic))
            self._go_on(task, header, answer["config"], on_topic)

    def _go_on(self, task: Task, header: SendHeader, topic: Json, on_topic: OnTopic) -> None:
        """Check the queue id, draw one where it is negative, and call `on_topic`."""
        checks.check_queue_id(self._tasks.broker, header, topic, _producer(task))
        if header.queue_id < 0:
            header = header._replace(queue_id=self._tasks.drawn_queue(topic["writeQueueNums"]))
        on_topic(header, topic)


def _producer(task: Task) -> str:
    """Return the producer's address as Java writes it."""
    return f"{task.peer.address.ip}:{task.peer.address.port}"
