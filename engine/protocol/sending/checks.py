"""What a broker looks at before it takes a sent message, in its order: permission, name, topic, queue id.

Implements: SendMessageProcessor.preSend, AbstractSendMessageProcessor.msgCheck, TopicValidator (spec: remoting, 7)
`engine.protocol.broker.requests` checks the names of topics that administrators make.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from engine.protocol.remoting.answers import NULL_POINTER, Refused, Thrown
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.sending.headers import NULL_KEY, SendHeader, lacking, quoted
from store.compat import Line
from store.message.record import MAX_TOPIC_BYTES
from store.message.topics import RETRY_PREFIX, TOPIC_PATTERN, is_not_for_clients

Json = dict[str, Any]
PERM_READ, PERM_WRITE, PERM_INHERIT = 4, 2, 1
UNIT, UNIT_SUBSCRIPTION = 1, 2  # TopicSysFlag
BODY = "org.apache.rocketmq.remoting.protocol.RemotingCommand.getBody()"
QUEUE_DRAWS = 99_999_999  # among so many numbers a broker draws a queue


class SendingBroker(NamedTuple):
    """The settings of a broker that decide about a send."""

    line: Line
    ip: str  # brokerIP1
    accepts_from_ms: int  # startAcceptSendRequestTimeStamp
    max_message_bytes: int


def check_whole(broker: SendingBroker, header: SendHeader, body_bytes: int) -> None:
    """Check what the newer line looks at before all else. Raises Thrown."""
    if header.topic is None and broker.line.broker.topic_is_dereferenced:
        raise NULL_KEY
    if not body_bytes and not broker.line.put.stores_empty_bodies:
        raise Thrown(f"{NULL_POINTER}: Cannot read the array length because the return value of {quoted(BODY)} is null")


def check_time(broker: SendingBroker, now_ms: int) -> None:
    """Raise Refused before the time from which the broker accepts messages."""
    if now_ms < broker.accepts_from_ms:
        until = datetime.fromtimestamp(broker.accepts_from_ms / 1000).astimezone()
        text = f"{until:%Y-%m-%d %H:%M:%S},{broker.accepts_from_ms % 1000:03d}"
        raise Refused(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {text}")


def forbidden(broker: SendingBroker) -> Refused:
    """Return what it says where brokerPermission takes no messages."""
    return Refused(ResponseCode.NO_PERMISSION, f"the broker[{broker.ip}] sending message is forbidden")


def check_name(broker: SendingBroker, header: SendHeader, topics: Mapping[str, Json], permission: int) -> str:
    """The topic's name. `permission` is the broker's own: only ordered topics are refused by it. Raises Refused."""
    topic = header.topic
    if not permission & PERM_WRITE and topics.get(topic or "", {}).get("order"):
        raise forbidden(broker)
    code = broker.line.broker.wrong_topic_code
    if topic is None or not topic.strip():
        raise Refused(code, "The specified topic is blank.")
    if not TOPIC_PATTERN.fullmatch(topic):
        raise Refused(code, "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$")
    if len(topic) > MAX_TOPIC_BYTES:
        raise Refused(code, "The specified topic is longer than topic max length.")
    if is_not_for_clients(topic):
        raise Refused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
    return topic


def topic_missing(broker: SendingBroker, topic: str) -> Refused:
    """Return what it says of a topic that nobody made, and that messages do not make."""
    remark = f"topic[{topic}] not exist, apply first please!{broker.line.naming.faq}"
    return Refused(ResponseCode.TOPIC_NOT_EXIST, remark)


def group_missing(broker: SendingBroker, group: str | None) -> Refused:
    """Return what it says of a consumer group without configuration."""
    shown = "null" if group is None else group
    remark = f"subscription group not exist, {shown} {broker.line.naming.faq}"
    return Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)


def unit_flag(header: SendHeader) -> int:
    """The topicSysFlag of a topic that its message makes."""
    if not header.unit_mode:
        return 0
    return UNIT_SUBSCRIPTION if (header.topic or "").startswith(RETRY_PREFIX) else UNIT


def check_queue_id(broker: SendingBroker, header: SendHeader, topic: Json, producer: str) -> None:
    """Raise Refused for a queue that the topic lacks, and Thrown where the header lacks a number."""
    if header.lacks:
        raise _lacking(broker, header.lacks)
    if header.queue_id >= max(topic["writeQueueNums"], topic["readQueueNums"]):
        remark = f"request queueId[{header.queue_id}] is illegal, {shown(topic, broker.line)} Producer: {producer}"
        raise Refused(broker.line.put.queue_id_code, remark)


def check_to_make(broker: SendingBroker, header: SendHeader) -> None:
    """Check that the header has the fields that are needed to make a topic. Raises Thrown."""
    if header.default_topic_queue_nums is None:
        raise _lacking(broker, "defaultTopicQueueNums")
    if header.default_topic is None:
        raise NULL_KEY


def _lacking(broker: SendingBroker, name: str) -> Thrown:
    return lacking(broker.line, "SendMessageRequestHeader", name, is_long=name == "bornTimestamp")


def shown(topic: Json, line: Line) -> str:
    """Format a topic as Java's TopicConfig.toString does."""
    perm = topic["perm"]
    letters = ((PERM_READ, "R"), (PERM_WRITE, "W"), (PERM_INHERIT, "X"))
    text = "".join(letter if perm & bit else "-" for bit, letter in letters)
    attributes = topic.get("attributes") or {}
    pairs = ", ".join(f"{name}={value}" for name, value in attributes.items())
    return (
        f"TopicConfig [topicName={topic['topicName']}, readQueueNums={topic['readQueueNums']}, "
        f"writeQueueNums={topic['writeQueueNums']}, perm={text}, topicFilterType={topic['topicFilterType']}, "
        f"topicSysFlag={topic['topicSysFlag']}, order={str(topic['order']).lower()}"
        + (f", attributes={{{pairs}}}]" if line.tables.topic_attributes else "]")
    )


def drawn_queue(draw: int, queues: int) -> int:
    """Return the queue that a random number selects. Raises Thrown where there are no queues."""
    if queues <= 0:
        raise Thrown("java.lang.ArithmeticException: / by zero")
    return draw % QUEUE_DRAWS % queues
