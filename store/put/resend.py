"""Messages that a broker writes from one that it has already stored: what becomes of it, version by version.

Implements: EndTransactionProcessor.endMessageTransaction, TransactionalMessageBridge.renewHalfMessageInner and
makeOpMessageInner, DefaultTransactionalMessageCheckListener.toMessageExtBrokerInner, ScheduleMessageService's
messageTimeup, AbstractSendMessageProcessor.consumerSendMsgBack (spec: store-formats, section 8)
Java's message carries one map from the old message to the new one, and writes its string before or after a change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from store.errors import InvalidMessage
from store.message.properties import (
    CHECK_TIMES,
    DELAY,
    ORIGIN_MESSAGE_ID,
    PREPARED_QUEUE_OFFSET,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_TOPIC,
    TAGS,
    TRANSACTION_PREPARED,
    WAIT,
    java_text,
)
from store.message.record import TRANSACTION_MASK, Message, SysFlag
from store.message.topics import CHECK_MAX_TOPIC, DEAD_PREFIX, HALF_TOPIC, OP_TOPIC, RETRY_PREFIX
from store.put.java_map import JavaMap
from store.put.policy import Facts, parse_properties, property_text
from store.put.request import INT_MAX, TIMERS, Stored, java_int

OP_TAG, OP_SEPARATOR = "d", ","
NEW_MAP_CAPACITY = 16
SEND_BACK_LEVEL, MAX_RECONSUME_TIMES = 3, 16


def copy_of(message: Message, facts: Facts) -> Stored:
    """A stored message as a broker reads it, to write it again."""
    fields = parse_properties(facts.policy, java_text(message.properties_raw))
    return Stored(
        topic=message.topic,
        queue_id=message.queue_id,
        body=bytes(message.body),
        fields=fields,
        properties=property_text(facts.policy, fields),
        sys_flag=message.sys_flag,
        flag=message.flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
    )


def _real_queue(fields: JavaMap) -> tuple[str, int]:
    """Return where a message that was moved belongs. Raises InvalidMessage."""
    if not fields.get(REAL_TOPIC):
        raise InvalidMessage(f"property {REAL_TOPIC}", "the stored message does not name its topic and queue")
    return fields[REAL_TOPIC], java_int(fields.get(REAL_QUEUE_ID, ""), REAL_QUEUE_ID, 0, INT_MAX)


def committed(half: Message, facts: Facts) -> Stored:
    """The message of a half message whose transaction is committed. Raises InvalidMessage."""
    stored = copy_of(half, facts)
    topic, queue_id = _real_queue(stored.fields)
    for name in (REAL_TOPIC, REAL_QUEUE_ID, TRANSACTION_PREPARED):  # after the string was written
        stored.fields.pop(name, None)
    return replace(
        stored,
        topic=topic,
        queue_id=queue_id,
        prepared_transaction_offset=half.physical_offset,
        sys_flag=stored.sys_flag & ~TRANSACTION_MASK | SysFlag.TRANSACTION_COMMIT,
    )


def check_half(half: Message, producer_group: str | None) -> None:
    """EndTransactionProcessor.checkPrepareMessage, without a group only that it is a half. Raises InvalidMessage."""
    if half.topic != HALF_TOPIC:
        raise InvalidMessage("half message", f"the message at {half.physical_offset} is of topic {half.topic}")
    group = half.properties.get(PRODUCER_GROUP)
    if producer_group is not None and group != producer_group:
        raise InvalidMessage("half message", f"its producer group is {group}, not {producer_group}")


def op_message(queue_id: int, offsets: str, facts: Facts, now_ms: int) -> Stored:
    """The message that says which half messages of a queue are done with: their offsets, as `op_offsets` makes them."""
    fields = JavaMap(NEW_MAP_CAPACITY, [(TAGS, OP_TAG), (WAIT, "true")])
    return Stored(
        topic=OP_TOPIC,
        queue_id=queue_id,
        body=offsets.encode(),
        fields=fields,
        properties=property_text(facts.policy, fields),
        born_timestamp_ms=now_ms,
        born_host=facts.store_host,
        store_host=facts.store_host,
    )


def op_offsets(queue_offset: int, facts: Facts) -> str:
    """Return what the end of one transaction adds to an op message."""
    return f"{queue_offset}{OP_SEPARATOR}" if facts.policy.ops_in_batches else str(queue_offset)


def checked_half(half: Message, facts: Facts, check_times: int, *, is_early: bool = False) -> Stored:
    """A half message put back at the queue's end, because its producer is asked about it for the n-th time.

    `is_early`: put back because its own time to wait (CHECK_IMMUNITY_TIME_IN_SECONDS) is not over.
    """
    stored = copy_of(half, facts)
    fields = stored.fields
    fields.put(CHECK_TIMES, str(check_times))
    if is_early:
        fields.put(WAIT, "false")
        fields.put(PREPARED_QUEUE_OFFSET, fields.get(PREPARED_QUEUE_OFFSET, str(half.queue_offset)))
    renewed = replace(stored, properties=property_text(facts.policy, fields), flag=0, reconsume_times=0)
    fields.put(WAIT, "false")
    return renewed


def given_up_half(half: Message, facts: Facts, check_times: int | None = None) -> Stored:
    """A half message whose producer was asked too often, or (`check_times`: it would be asked) that is too old."""
    stored = copy_of(half, facts)
    if check_times is not None:
        stored.fields.put(CHECK_TIMES, str(check_times))
    return replace(stored, topic=CHECK_MAX_TOPIC, queue_id=0, properties=property_text(facts.policy, stored.fields))


def resumed_half(half: Message, facts: Facts) -> Stored:
    """A half message that was given up, or is asked about too often, from the beginning (323)."""
    stored = copy_of(half, facts)
    stored.fields.put(CHECK_TIMES, "0")
    text = property_text(facts.policy, stored.fields)
    stored.fields.put(WAIT, "false")
    return replace(stored, topic=HALF_TOPIC, queue_id=0, properties=text)


def delivered(delayed: Message, facts: Facts) -> Stored:
    """A delayed message, in its own queue once it is due. Raises InvalidMessage."""
    stored = copy_of(delayed, facts)
    topic, queue_id = _real_queue(stored.fields)
    stored.fields.put(WAIT, "false")  # after the string was written
    for name in (DELAY, *TIMERS) if facts.policy.timers else (DELAY,):
        stored.fields.pop(name, None)
    return replace(stored, topic=topic, queue_id=queue_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBack:
    """A CONSUMER_SEND_MSG_BACK request. `queue_id` is the broker's choice among the retry topic's queues."""

    group: str
    delay_level: int = 0
    max_reconsume_times: int = MAX_RECONSUME_TIMES
    queue_id: int = 0


def sent_back(message: Message, request: SendBack, facts: Facts) -> Stored:
    """A message that a consumer could not work on: to be tried again later, or dead."""
    stored = copy_of(message, facts)
    fields = stored.fields
    if RETRY_TOPIC not in fields:
        fields.put(RETRY_TOPIC, message.topic)
    fields.put(WAIT, "false")
    topic, queue_id, level = RETRY_PREFIX + request.group, request.queue_id, request.delay_level
    if message.reconsume_times >= request.max_reconsume_times or level < 0:
        topic, queue_id, level = DEAD_PREFIX + request.group, 0, 0
    elif level == 0:
        level = SEND_BACK_LEVEL + message.reconsume_times
    fields.put(DELAY, str(level))
    if not fields.get(ORIGIN_MESSAGE_ID, "").strip():
        fields.put(ORIGIN_MESSAGE_ID, message.message_id)
    return replace(
        stored,
        topic=topic,
        queue_id=queue_id,
        properties=property_text(facts.policy, fields),
        store_host=stored.store_host if facts.policy.keeps_store_host else facts.store_host,
        reconsume_times=message.reconsume_times + 1,
    )
