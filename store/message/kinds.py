"""What a record of the log is: an ordinary message, part of a transaction, delayed, sent back, a batch.

Implements: the cases that CommitLog's dispatchers, TransactionalMessageBridge, ScheduleMessageService and
    SendMessageProcessor.consumerSendMsgBack tell apart (spec: store-formats, sections 2, 5, 8)
"""

from __future__ import annotations

from enum import Enum

from store.message.delay import JAVA_INTEGER, SCHEDULE_TOPIC
from store.message.properties import REAL_QUEUE_ID, REAL_TOPIC
from store.message.record import TRANSACTION_MASK, Message, SysFlag
from store.message.topics import DEAD_PREFIX, HALF_TOPIC, OP_TOPIC, RETRY_PREFIX, TIMER_TOPIC


class MessageKind(Enum):
    """The kinds of records. Only ordinary ones, commits, retries, dead letters and batches reach consumers."""

    ORDINARY = "ordinary"
    PREPARED = "prepared"  # a half message of very old brokers: it stays in its own topic, without a queue entry
    HALF = "half"  # waits in the half topic for the word of its producer
    OP = "op"  # names the half messages that are done
    COMMIT = "commit"  # a half message's copy in its own topic
    ROLLBACK = "rollback"
    DELAYED = "delayed"  # waits in the schedule topic
    TIMER = "timer"  # waits in the timer wheel's topic (5.x)
    RETRY = "retry"  # sent back by a consumer
    DEAD_LETTER = "dead letter"
    INNER_BATCH = "inner batch"  # several messages in one record (5.x)


_BY_TOPIC = {
    HALF_TOPIC: MessageKind.HALF, OP_TOPIC: MessageKind.OP, SCHEDULE_TOPIC: MessageKind.DELAYED,
    TIMER_TOPIC: MessageKind.TIMER,
}  # fmt: skip
_BY_FLAG = {
    SysFlag.TRANSACTION_PREPARED: MessageKind.PREPARED,
    SysFlag.TRANSACTION_COMMIT: MessageKind.COMMIT,
    SysFlag.TRANSACTION_ROLLBACK: MessageKind.ROLLBACK,
}


def kind_of(message: Message) -> MessageKind:
    """The kind of a record, by its topic, its transaction bits, its batch bit, in this order."""
    kind = _BY_TOPIC.get(message.topic) or _BY_FLAG.get(SysFlag(message.sys_flag & TRANSACTION_MASK))
    if kind is not None:
        return kind
    if message.sys_flag & SysFlag.INNER_BATCH:
        return MessageKind.INNER_BATCH
    if message.topic.startswith(RETRY_PREFIX):
        return MessageKind.RETRY
    return MessageKind.DEAD_LETTER if message.topic.startswith(DEAD_PREFIX) else MessageKind.ORDINARY


def destination_of(message: Message) -> tuple[str, int]:
    """Return the topic and queue where the message belongs in the end.

    A half, delayed or timer message keeps them in REAL_TOPIC and REAL_QID.

    Its own topic and queue for any other, and where these two are not there.
    """
    properties = message.properties
    topic, queue_id = properties.get(REAL_TOPIC), properties.get(REAL_QUEUE_ID, "")
    if kind_of(message) in _BY_TOPIC.values() and topic and JAVA_INTEGER(queue_id):
        return topic, int(queue_id)
    return message.topic, message.queue_id
