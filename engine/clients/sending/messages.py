"""Messages of a remote producer: checked as Java's client checks them, and in the form in which they are sent.

Implements: Validators, MessageDecoder.encodeMessages, DefaultMQProducerImpl.sendKernelImpl (its header)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from engine.clients.cluster import DEFAULT_QUEUES, Place
from engine.errors import MessageIllegal
from engine.producer.argument_checks import body_bytes, fields_of, joined, text, whole
from engine.producer.unique_keys import UniqueKeys
from engine.protocol.remoting.codes import RequestCode
from store.errors import InvalidMessage
from store.message import properties as property_string
from store.message.compression import compressed
from store.message.properties import (
    DELAY,
    PRODUCER_GROUP,
    RESERVED_NAMES,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    WAIT,
)
from store.message.record import SysFlag
from store.message.topics import AUTO_CREATE_TOPIC, NOT_FOR_CLIENTS, RETRY_PREFIX, TOPIC_PATTERN
from store.put.batch import ITEM_HEAD, LENGTH

TOPIC_LENGTH_MAX = 127
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
REQUEST_BYTES = 1024  # of a request besides topic, body and properties, about


class MessageFields(TypedDict, total=False):
    """What a message has besides its topic and its body.

    `queue_id` is a queue's number, which may be on any broker, or one of `queues`. `shard_by` is a key: all messages of
    one key are sent to one queue. `delay_level` is 1 to 18 by RocketMQ's default. `flag` is a number for the consumer.
    """

    tags: str | None
    keys: str | list[str] | None
    properties: Mapping[str, str] | None
    queue_id: int | Place | None
    flag: int
    delay_level: int
    shard_by: str | int | None


class BatchFields(TypedDict, total=False):
    """What the messages of a batch have besides their topic and their bodies, like MessageFields."""

    tags: str | Sequence[str | None] | None
    keys: str | Sequence[str | None] | None
    properties: Mapping[str, str] | None
    queue_id: int | Place | None
    flag: int
    shard_by: str | int | None


class Limits(NamedTuple):
    """From how many bytes on a body is compressed, and how many bytes a message has at most."""

    compress_from: int
    message_bytes_max: int


class Draft(NamedTuple):
    """A checked message, ready to be sent to any queue. A batch has several `message_ids`."""

    topic: str
    body: bytes
    property_text: str
    message_ids: tuple[str, ...]
    sys_flag: int = 0
    flag: int = 0
    queue_id: int | Place | None = None
    shard_by: str | int | None = None
    is_batch: bool = False

    @property
    def code(self) -> int:
        """Return the request code that sends it."""
        return RequestCode.SEND_BATCH_MESSAGE if self.is_batch else RequestCode.SEND_MESSAGE_V2

    @property
    def has_one_queue(self) -> bool:
        """Whether it must not be sent to another queue."""
        return self.shard_by is not None or isinstance(self.queue_id, Place)

    @property
    def cost(self) -> int:
        """Return about how many bytes it occupies until it is answered."""
        return len(self.body) + len(self.property_text) + len(self.topic) + REQUEST_BYTES

    def header(self, group: str, queue_id: int, born_ms: int) -> dict[str, str]:
        """Return the fields of the request that sends it to a queue."""
        return send_fields(group, self.topic, queue_id, self.property_text, born_ms) | {
            "f": str(self.sys_flag),
            "h": str(self.flag),
            "m": "true" if self.is_batch else "false",
        }


def send_fields(group: str, topic: str, queue_id: int, property_text: str, born_ms: int) -> dict[str, str]:
    """Return the header of a plain message, as SEND_MESSAGE_V2 has it. `born_ms` is a time of the wall clock."""
    return {
        "a": group,
        "b": topic,
        "c": AUTO_CREATE_TOPIC,
        "d": str(DEFAULT_QUEUES),
        "e": str(queue_id),
        "f": "0",
        "g": str(born_ms),
        "h": "0",
        "i": property_text,
        "j": "0",
        "k": "false",
        "m": "false",
    }


def draft_of(
    topic: str, body: Any, fields: MessageFields, unique_keys: UniqueKeys, limits: Limits, half_of: str | None = None
) -> Draft:
    """Return a message to send; with `half_of`, a producer group, the half message of a transaction.

    Raises MessageIllegal, TypeError.
    """
    _check_names(fields, MessageFields)
    check_topic(topic)
    data = checked_body(body, limits)
    texts = _texts(fields.get("tags"), fields.get("keys"), fields.get("properties"), fields.get("delay_level", 0))
    message_id = texts[UNIQ_KEY] = unique_keys.new()
    texts[WAIT] = "true"
    sys_flag = 0
    if half_of is not None:
        if DELAY in texts:
            raise MessageIllegal("delay level", "a message of a transaction cannot have one")
        texts.update({TRANSACTION_PREPARED: "true", PRODUCER_GROUP: half_of})
        sys_flag |= SysFlag.TRANSACTION_PREPARED
    if len(data) >= limits.compress_from:
        data, sys_flag = compressed(data), sys_flag | SysFlag.COMPRESSED
    queue_id, shard_by = _queue(fields.get("queue_id"), fields.get("shard_by"))
    flag = whole(fields.get("flag", 0), "flag")
    return Draft(topic, data, property_text(texts), (message_id,), int(sys_flag), flag, queue_id, shard_by)


def batch_of(topic: str, bodies: Any, fields: BatchFields, unique_keys: UniqueKeys, limits: Limits) -> Draft:
    """Return a batch to send. `tags` and `keys` are one for all messages, or a list with one for each.

    Raises MessageIllegal, TypeError.
    """
    _check_names(fields, BatchFields)
    check_topic(topic)
    if topic.startswith(RETRY_PREFIX):
        raise MessageIllegal(f"topic {topic}", "a retry topic takes no batch")
    if isinstance(bodies, (str, bytes, bytearray, memoryview)):
        raise MessageIllegal("bodies", f"they are a list of bytes or str, not {type(bodies).__name__}")
    items = [checked_body(body, limits) for body in bodies]
    if not items:
        raise MessageIllegal("bodies", "a batch has at least one message")
    columns = [_column(fields.get("tags"), len(items), "tags"), _column(fields.get("keys"), len(items), "keys")]
    flag, parts, message_ids = whole(fields.get("flag", 0), "flag"), [], []
    for data, tags, keys in zip(items, *columns, strict=True):
        texts = _texts(tags, keys, fields.get("properties"), 0)
        message_id = texts[UNIQ_KEY] = unique_keys.new()
        texts[WAIT] = "true"
        raw = property_text(texts).encode()
        size = ITEM_HEAD.size + len(data) + LENGTH.size + len(raw)
        parts += [ITEM_HEAD.pack(size, 0, 0, flag, len(data)), data, LENGTH.pack(len(raw)), raw]
        message_ids.append(message_id)
    whole_body = b"".join(parts)
    if len(whole_body) > limits.message_bytes_max:
        raise MessageIllegal(f"batch of {len(whole_body)} bytes", f"the maximum is {limits.message_bytes_max}")
    queue_id, shard_by = _queue(fields.get("queue_id"), fields.get("shard_by"))
    shared = property_text({WAIT: "true"})
    return Draft(topic, whole_body, shared, tuple(message_ids), 0, 0, queue_id, shard_by, is_batch=True)


def _check_names(fields: Mapping[str, object], kind: type) -> None:
    unknown = sorted(fields.keys() - kind.__annotations__.keys())
    if unknown:
        raise TypeError(f"{unknown[0]!r} is not an argument; possible are {', '.join(kind.__annotations__)}")


def check_topic(topic: Any) -> None:
    """Check the name of a topic to send to, like Validators.checkTopic. Raises MessageIllegal."""
    name = text(topic, "topic")
    if not TOPIC_PATTERN.fullmatch(name) or len(name) > TOPIC_LENGTH_MAX:
        allowed = f"1 to {TOPIC_LENGTH_MAX} of a-z, A-Z, 0-9, '%', '|', '_' and '-'"
        why = f"it contains illegal characters or has a wrong length; allowed are {allowed}"
        raise MessageIllegal(f"topic {name[:TOPIC_LENGTH_MAX]!r}", why)
    if name in NOT_FOR_CLIENTS:
        raise MessageIllegal(f"topic {name}", "it belongs to the broker; clients cannot send to it")


def checked_body(body: Any, limits: Limits) -> bytes:
    """Return a body's bytes. Raises MessageIllegal."""
    data = body_bytes(body)
    if not data:
        raise MessageIllegal("body", "it is empty, which RocketMQ refuses")
    if len(data) > limits.message_bytes_max:
        raise MessageIllegal(f"body of {len(data)} bytes", f"the maximum is {limits.message_bytes_max}")
    return data


def _texts(tags: Any, keys: Any, properties: Any, delay_level: int) -> dict[str, str]:
    """Return the properties that a caller names."""
    if properties:
        reserved = sorted(RESERVED_NAMES.intersection(properties))
        if reserved:
            raise MessageIllegal(f"property {reserved[0]}", "RocketMQ sets it itself")
    return {
        text(name, "property name"): text(value, f"property {name}")
        for name, value in fields_of(tags, joined(keys), properties, delay_level).items()
    }


def property_text(texts: Mapping[str, str]) -> str:
    """Return properties as a request has them. Raises MessageIllegal."""
    try:
        return property_string.format(texts).decode()
    except InvalidMessage as invalid:
        raise MessageIllegal(invalid.field, invalid.reason) from None


def _column(values: Any, count: int, what: str) -> Sequence[Any]:
    """Return one value for each message of a batch. Raises MessageIllegal."""
    if values is None or isinstance(values, str):
        return [values] * count
    if not isinstance(values, (list, tuple)) or len(values) != count:
        raise MessageIllegal(what, f"of a batch they are one str, or a list with one for each of its {count} messages")
    return values


def _queue(queue_id: Any, shard_by: Any) -> tuple[int | Place | None, str | int | None]:
    """Return the queue and the key that a caller names. Raises MessageIllegal."""
    if queue_id is not None and shard_by is not None:
        raise MessageIllegal("shard_by", "it chooses the queue, so a queue id cannot be given, too")
    if shard_by is not None and not isinstance(shard_by, str):
        shard_by = whole(shard_by, "shard_by", LONG_MIN, LONG_MAX)
    if queue_id is not None and not isinstance(queue_id, Place):
        queue_id = whole(queue_id, "queue id", 0)
    return queue_id, shard_by


def transaction_fields(
    group: str, queue_offset: int, physical_offset: int, ids: tuple[str, str], decision: bool | None
) -> dict[str, str]:
    """Return the header of END_TRANSACTION: True commits, False rolls back, None leaves the decision to a later check.

    `ids` are the message's id and the transaction's.
    """
    kind = SysFlag.TRANSACTION_COMMIT if decision else SysFlag.TRANSACTION_ROLLBACK
    return {
        "producerGroup": group,
        "tranStateTableOffset": str(queue_offset),
        "commitLogOffset": str(physical_offset),
        "commitOrRollback": str(int(kind) if decision is not None else 0),
        "fromTransactionCheck": "false",
        "msgId": ids[0],
        "transactionId": ids[1],
    }
