"""What a client says in a heartbeat: its producers' groups, its consumers' groups with what they subscribe to.

Implements: HeartbeatData, ConsumerData, ProducerData, SubscriptionData, CheckClientRequestBody as fastjson reads them
spec: remoting, 7 requests from clients
Clients in C++ write enums as ordinals. What no Java field can hold, or more than any client says, is refused whole.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from store.tables import fastjson, java_fields
from store.tables.fastjson import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, MalformedJson
from store.tables.java_fields import JavaFields

BODY_BYTES_MAX = 1 << 20  # what a front keeps of one, too
NAME_CHARACTERS_MAX, TEXT_CHARACTERS_MAX = 255, 64 * 1024
GROUPS_MAX, TOPICS_MAX, TAGS_MAX = 1024, 4096, 4096  # of a client, of a group, of a subscription
TAG, SQL92 = "TAG", "SQL92"
PASSIVELY = "CONSUME_PASSIVELY"
BROADCASTING = "BROADCASTING"
CONSUME_TYPES = ("CONSUME_ACTIVELY", PASSIVELY, "CONSUME_POP")  # enums: in the order of their ordinals
MESSAGE_MODELS = (BROADCASTING, "CLUSTERING")
WHERE = (
    "CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST", "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP",
)  # fmt: skip
WHAT, CONFIG = "heartbeat", "client's configuration"

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
        """Return the subscription as fronts receive it."""
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
    """Content of a client's heartbeat, decoded."""

    client_id: str
    producers: tuple[str, ...]
    consumers: tuple[ConsumerData, ...]
    fingerprint: int  # 5.x: of what it subscribes to; 0 where it does not say
    without_sub: bool  # 5.x: nothing changed, and so it is not said again


class CheckedConfig(NamedTuple):
    """A client's question before it subscribes by an expression."""

    subscription: Subscription | None


def heartbeat_of(body: bytes | memoryview, now_ms: int) -> HeartbeatData:
    """A heartbeat's body. Raises MalformedJson."""
    if not len(body):
        raise MalformedJson(WHAT, "it has no body")
    fields = JavaFields(fastjson.sent(body, WHAT, BODY_BYTES_MAX), WHAT)
    producers = tuple(_name(one, "groupName") for one in fields.objects("producerDataSet", GROUPS_MAX))
    consumers = tuple(_consumer(one, now_ms) for one in fields.objects("consumerDataSet", GROUPS_MAX))
    return HeartbeatData(
        _name(fields, "clientID"),
        producers,
        consumers,
        fields.number("heartbeatFingerprint"),
        fields.flag("withoutSub"),
    )


def checked_config_of(body: bytes | memoryview, now_ms: int) -> CheckedConfig:
    """The body of CHECK_CLIENT_CONFIG. Raises MalformedJson."""
    value = fastjson.sent(body, CONFIG, BODY_BYTES_MAX) if len(body) else None
    subscription = JavaFields(value, CONFIG).value("subscriptionData") if value is not None else None
    return CheckedConfig(
        None if subscription is None else _subscription(JavaFields(subscription, CONFIG, "its subscription"), now_ms)
    )


def _consumer(fields: JavaFields, now_ms: int) -> ConsumerData:
    subscriptions = tuple(_subscription(one, now_ms) for one in fields.objects("subscriptionDataSet", TOPICS_MAX))
    return ConsumerData(
        _name(fields, "groupName"),
        fields.one_of("consumeType", CONSUME_TYPES),
        fields.one_of("messageModel", MESSAGE_MODELS),
        fields.one_of("consumeFromWhere", WHERE),
        tuple(dict.fromkeys(subscriptions)),
        fields.flag("unitMode"),
    )


def _subscription(fields: JavaFields, now_ms: int) -> Subscription:
    tags = [java_fields.text_of(tag) for tag in fields.items("tagsSet", TAGS_MAX) if tag is not None]
    try:
        read = (java_fields.whole_of(code, INT32_MIN, INT32_MAX) for code in fields.items("codeSet", TAGS_MAX))
        codes = [code for code in read if code is not None]
    except ValueError as wrong:
        raise MalformedJson(WHAT, f"a subscription's codeSet: {wrong}") from None
    return Subscription(
        _name(fields, "topic"),
        _text(fields, "subString"),
        _text(fields, "expressionType", TAG),
        fields.number("subVersion", now_ms, INT64_MIN, INT64_MAX),
        tuple(dict.fromkeys(codes)),
        tuple(dict.fromkeys(tags)),
        fields.flag("classFilterMode"),
    )


def _name(fields: JavaFields, name: str) -> str:
    """A name of a group, topic or client. Raises MalformedJson."""
    value = fields.text(name)
    if value is None or not 0 < len(value) <= NAME_CHARACTERS_MAX or not value.isprintable():
        raise MalformedJson(WHAT, f"{name} is not a printable text of 1 to {NAME_CHARACTERS_MAX} characters")
    if len(value.encode()) > NAME_CHARACTERS_MAX:
        raise MalformedJson(WHAT, f"{name} has more than {NAME_CHARACTERS_MAX} bytes")
    return value


def _text(fields: JavaFields, name: str, default: str | None = None) -> str | None:
    value = fields.text(name, default)
    if len(value or "") > TEXT_CHARACTERS_MAX:
        raise MalformedJson(WHAT, f"{name} has more than {TEXT_CHARACTERS_MAX} characters")
    return value
