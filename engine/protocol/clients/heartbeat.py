"""What a client says in a heartbeat: its producers' groups, its consumers' groups with what they subscribe to.

Implements: HeartbeatData, ConsumerData, ProducerData, SubscriptionData, CheckClientRequestBody as fastjson reads them
spec: remoting, 7 requests from clients
A stranger's words: of wrong kinds, or more than any client says, they are refused here, and nothing of them is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from store.errors import MalformedData
from store.tables import fastjson
from store.tables.fastjson import INT32_MAX, INT32_MIN

BODY_BYTES_MAX = 1 << 20  # what a front keeps of one, too
NAME_CHARACTERS_MAX, TEXT_CHARACTERS_MAX = 255, 64 * 1024
GROUPS_MAX, TOPICS_MAX, TAGS_MAX = 1024, 4096, 4096  # of a client, of a group, of a subscription
TAG, SQL92 = "TAG", "SQL92"
PASSIVELY = "CONSUME_PASSIVELY"
BROADCASTING = "BROADCASTING"
CONSUME_TYPES = (PASSIVELY, "CONSUME_ACTIVELY", "CONSUME_POP")
MESSAGE_MODELS = (BROADCASTING, "CLUSTERING")
WHERE = (
    "CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST", "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP",
)  # fmt: skip
WHAT = "heartbeat"

Json = dict[str, Any]


class Subscription(NamedTuple):
    """SubscriptionData: what a group wants of one topic."""

    topic: str
    sub_string: str | None
    expression_type: str | None
    sub_version: int
    codes: tuple[int, ...]
    tags: tuple[str, ...]
    class_filter_mode: bool

    def value(self) -> Json:
        """As fronts are told of it."""
        return {
            "subString": self.sub_string, "expressionType": self.expression_type, "subVersion": self.sub_version,
            "codeSet": list(self.codes), "tagsSet": list(self.tags), "classFilterMode": self.class_filter_mode,
        }  # fmt: skip


class ConsumerData(NamedTuple):
    """A group that the client consumes for."""

    group: str
    consume_type: str | None
    message_model: str | None
    consume_from_where: str | None
    subscriptions: tuple[Subscription, ...]
    unit_mode: bool


class HeartbeatData(NamedTuple):
    """All of a heartbeat."""

    client_id: str
    producers: tuple[str, ...]
    consumers: tuple[ConsumerData, ...]
    fingerprint: int  # 5.x: of what it subscribes to; 0 where it does not say
    without_sub: bool  # 5.x: nothing changed, and so it is not said again


class CheckedConfig(NamedTuple):
    """What a client asks before it subscribes by an expression."""

    subscription: Subscription | None


def heartbeat_of(body: bytes | memoryview, now_ms: int) -> HeartbeatData:
    """A heartbeat's body. Raises MalformedData."""
    fields = _fields(fastjson.loads(body, WHAT, BODY_BYTES_MAX), "the body")
    producers = tuple(
        _name(one, "groupName") for one in _objects(fields, "producerDataSet", GROUPS_MAX)
    )  # fmt: skip
    consumers = tuple(_consumer(one, now_ms) for one in _objects(fields, "consumerDataSet", GROUPS_MAX))
    return HeartbeatData(
        _name(fields, "clientID"), producers, consumers, _int32(fields, "heartbeatFingerprint"),
        _flag(fields, "withoutSub"),
    )  # fmt: skip


def checked_config_of(body: bytes | memoryview, now_ms: int) -> CheckedConfig:
    """The body of CHECK_CLIENT_CONFIG. Raises MalformedData."""
    value = fastjson.loads(body, "client's configuration", BODY_BYTES_MAX) if len(body) else None
    subscription = _fields(value, "the body").get("subscriptionData") if value is not None else None
    return CheckedConfig(None if subscription is None else _subscription(_fields(subscription, "it"), now_ms))


def _consumer(fields: Json, now_ms: int) -> ConsumerData:
    subscriptions = tuple(_subscription(one, now_ms) for one in _objects(fields, "subscriptionDataSet", TOPICS_MAX))
    return ConsumerData(
        _name(fields, "groupName"), _one_of(fields, "consumeType", CONSUME_TYPES),
        _one_of(fields, "messageModel", MESSAGE_MODELS), _one_of(fields, "consumeFromWhere", WHERE),
        tuple(dict.fromkeys(subscriptions)), _flag(fields, "unitMode"),
    )  # fmt: skip


def _subscription(fields: Json, now_ms: int) -> Subscription:
    codes = _list(fields, "codeSet", TAGS_MAX)
    tags = _list(fields, "tagsSet", TAGS_MAX)
    if not all(isinstance(tag, str) for tag in tags):
        raise MalformedData(WHAT, "a tag is no text")
    try:
        version = fastjson.whole_number(fields["subVersion"]) if "subVersion" in fields else now_ms
        numbers = tuple(fastjson.whole_number(code, INT32_MIN, INT32_MAX) for code in codes)
    except ValueError as wrong:
        raise MalformedData(WHAT, f"a subscription's numbers: {wrong}") from None
    return Subscription(
        _name(fields, "topic"), _text(fields, "subString"), _text(fields, "expressionType", TAG), version,
        tuple(dict.fromkeys(numbers)), tuple(dict.fromkeys(tags)), _flag(fields, "classFilterMode"),
    )  # fmt: skip


def _fields(value: Any, what: str) -> Json:
    if not isinstance(value, dict):
        raise MalformedData(WHAT, f"{what} is no object")
    return value


def _list(fields: Json, name: str, most: int) -> list[Any]:
    values = fields.get(name)
    if values is None:
        return []
    if not isinstance(values, list) or len(values) > most:
        raise MalformedData(WHAT, f"{name} is no list, or has more than {most} items")
    return values


def _objects(fields: Json, name: str, most: int) -> Iterator[Json]:
    for value in _list(fields, name, most):
        yield _fields(value, f"an item of {name}")


def _name(fields: Json, name: str) -> str:
    """A name of a group, topic or client. Raises MalformedData."""
    value = fields.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARACTERS_MAX or not value.isprintable():
        raise MalformedData(WHAT, f"{name} is no printable text of 1 to {NAME_CHARACTERS_MAX} characters")
    if len(value.encode()) > NAME_CHARACTERS_MAX:
        raise MalformedData(WHAT, f"{name} has more than {NAME_CHARACTERS_MAX} bytes")
    return value


def _text(fields: Json, name: str, default: str | None = None) -> str | None:
    value = fields.get(name, default)
    if not isinstance(value, str | None) or len(value or "") > TEXT_CHARACTERS_MAX:
        raise MalformedData(WHAT, f"{name} is no text of at most {TEXT_CHARACTERS_MAX} characters")
    return value


def _one_of(fields: Json, name: str, values: tuple[str, ...]) -> str | None:
    """A name of Java's enumeration, or nothing."""
    value = fields.get(name)
    if value is not None and value not in values:
        raise MalformedData(WHAT, f"{name} is none of {', '.join(values)}")
    return str(value) if value is not None else None


def _int32(fields: Json, name: str) -> int:
    try:
        return fastjson.whole_number(fields.get(name) or 0, INT32_MIN, INT32_MAX)
    except ValueError as wrong:
        raise MalformedData(WHAT, f"{name}: {wrong}") from None


def _flag(fields: Json, name: str) -> bool:
    value = fields.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise MalformedData(WHAT, f"{name} is neither true nor false")
