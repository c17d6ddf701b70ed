"""Rules for messages that a consumer failed to consume: when they are delivered again, and when no more.

Implements: DefaultMQPushConsumerImpl.sendMessageBack, ConsumerSendMsgBackRequestHeader, and the retries of
ConsumeMessageConcurrentlyService and ConsumeMessageOrderlyService (spec: remoting, 7; store-formats, 8)
A consumer of messages in any order gives a failed message back to its broker, which stores it again in the group's
retry topic. If the broker does not take it back, the consumer sends the message to the retry topic itself. An ordered
consumer tries the same message again, and sends it to the retry topic only to give it up.
"""

from __future__ import annotations

from typing import NamedTuple

from store.message.properties import (
    DELAY,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    RECONSUME_TIME,
    RETRY_TOPIC,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
)
from store.message.record import Message
from store.message.topics import RETRY_PREFIX

BROKER_DECIDES, DEAD_LETTER = 0, -1  # delay levels; 1 and higher name a level of the broker's messageDelayLevel
LEVEL_OF_FIRST_FAILURE = 3
RETRIES_MAX = 16
PAUSE_MS = 1000  # of an ordered consumer's queue
TRY_AGAIN_MS = 5000  # until a consumer tries a message that no broker took back


class Resent(NamedTuple):
    """A failed message as an ordinary one of the group's retry topic.

    A producer puts the two numbers into the header's fields `j` and `l`, not into the properties.
    """

    topic: str
    body: bytes
    flag: int
    properties: dict[str, str]
    reconsume_times: int
    max_reconsume_times: int


def delay_level(reconsume_times: int) -> int:
    """Return the level of the delay before the next delivery: 3 for a message that failed for the first time.

    A broker decides the same for BROKER_DECIDES, and uses its highest level if it has none as high.
    """
    return LEVEL_OF_FIRST_FAILURE + reconsume_times


def sent_to(topic: str, retry_topic: str | None) -> str:
    """Return the topic that a message was sent to, where it comes again through a group's retry topic."""
    return retry_topic or topic if topic.startswith(RETRY_PREFIX) else topic


def first_topic(message: Message, group: str) -> str:
    """Return the topic that the message was sent to before its first failure."""
    if message.topic == RETRY_PREFIX + group:
        return message.properties.get(RETRY_TOPIC) or message.topic
    return message.topic


def send_back_fields(
    message: Message, group: str, broker: str, retries: int = RETRIES_MAX, level: int = BROKER_DECIDES
) -> dict[str, str]:
    """Return the header of CONSUMER_SEND_MSG_BACK, which both release lines read, for the message's own broker."""
    return {
        "offset": str(message.physical_offset),
        "group": group,
        "delayLevel": str(level),
        "originMsgId": _client_id(message),
        "originTopic": first_topic(message, group),
        "unitMode": "false",
        "maxReconsumeTimes": str(retries),
        "bname": broker,
    }


def resent(message: Message, body: bytes, group: str, retries: int = RETRIES_MAX) -> Resent:
    """Return the message that a consumer sends if its broker does not take the failed one back.

    `body` is what the consumer was given, not compressed. Brokers make a dead letter of it above `retries`. Unlike
    DefaultMQPushConsumerImpl, which loses it, this names the first message's id, as ordered Java consumers do.
    """
    properties = {
        **message.properties,
        ORIGIN_MESSAGE_ID: message.properties.get(ORIGIN_MESSAGE_ID, "").strip() or _client_id(message),
        RETRY_TOPIC: first_topic(message, group),
        DELAY: str(delay_level(message.reconsume_times)),
    }
    for name in (TRANSACTION_PREPARED, RECONSUME_TIME, MAX_RECONSUME_TIMES):
        properties.pop(name, None)
    return Resent(RETRY_PREFIX + group, body, message.flag, properties, message.reconsume_times + 1, retries)


def _client_id(message: Message) -> str:
    """The id that its producer gave it; the broker's id for a message without one."""
    return message.properties.get(UNIQ_KEY) or message.message_id
