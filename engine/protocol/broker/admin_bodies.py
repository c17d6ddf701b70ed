"""What a broker tells administrators of queues, consumers and producers: bodies of answers, as both lines write them.

Implements: TopicStatsTable, ConsumeStats, ConsumeStatsList, ConsumerConnection, ProducerConnection, ProducerTableInfo,
    ResetOffsetBody, ResetOffsetBodyForC, GetConsumerStatusBody, QueryConsumeTimeSpanBody, QueryConsumeQueueResponseBody
Tables by queue have objects for keys, which is no JSON: fastjson writes and reads it. Entries stand in the order of
Java's maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from engine.protocol.remoting.places import CONCURRENT_CAPACITY, Place, hash_order, with_text_keys
from store.compat import Line
from store.tables import fastjson
from store.tables.fastjson import MalformedJson
from store.tables.java_fields import JavaFields, whole_of
from store.tables.tables import hash_map_order, java_order

CLIENT_BODY_BYTES_MAX = 4 << 20
Json = dict[str, Any]


class TopicOffset(NamedTuple):
    """The ends of a queue, and when its last message was stored."""

    min_offset: int
    max_offset: int
    last_update_ms: int


class Consumed(NamedTuple):
    """The progress of a group in a queue; `last_ms`: when the last message that it consumed was stored."""

    broker_offset: int
    consumer_offset: int
    pull_offset: int = 0
    last_ms: int = 0


class ConsumeStats(NamedTuple):
    """The progress of a group in the queues of some topics, and how many messages a second it takes."""

    queues: dict[Place, Consumed]
    tps: float = 0.0

    @property
    def total_diff(self) -> int:
        """Return the sum of all lags, like ConsumeStats.computeTotalDiff."""
        return sum(one.broker_offset - one.consumer_offset for one in self.queues.values())

    @property
    def inflight_diff(self) -> int:
        """Return the messages pulled but not consumed, like ConsumeStats.computeInflightTotalDiff."""
        return sum(one.pull_offset - one.consumer_offset for one in self.queues.values())


class Connected(NamedTuple):
    """A client, as lists of connections name it."""

    client_id: str
    address: str
    language: str
    version: int
    last_update_ms: int = 0


class TimeSpan(NamedTuple):
    """When a queue's first and last message were stored, and the next one for a group."""

    queue: Place
    min_ms: int
    max_ms: int
    consumed_ms: int
    delay_ms: int


def _object(fields: Mapping[str, str]) -> str:
    """An object of values that are text already."""
    return "{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}"


def _list(texts: Iterable[str]) -> str:
    return "[" + ",".join(texts) + "]"


def double(value: float) -> str:
    """Format a number as Java's Double.toString does."""
    if not value or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    shortest = (f"{value:.{precision}e}" for precision in range(18))
    digits, _e, exponent = next(text for text in shortest if float(text) == value).partition("e")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


def by_queue(table: Mapping[Place, str], *, concurrent: bool = False) -> str:
    """A table by queue, in the order of a HashMap or of a ConcurrentHashMap; values are text already."""
    ordered = hash_order(table, concurrent=concurrent)
    return "{" + ",".join(f"{fastjson.dumps(queue.value())}:{table[queue]}" for queue in ordered) + "}"


def topic_stats(table: Mapping[Place, TopicOffset], put_tps: float, line: Line) -> bytes:
    """Return the body of GET_TOPIC_STATS_INFO (202)."""
    queues = {
        queue: _object(
            {
                "lastUpdateTimestamp": str(one.last_update_ms),
                "maxOffset": str(one.max_offset),
                "minOffset": str(one.min_offset),
            }
        )
        for queue, one in table.items()
    }
    body = {"offsetTable": by_queue(queues, concurrent=line.admin.stats_tables_are_concurrent)}
    if line.admin.tells_put_tps:
        body["topicPutTps"] = double(put_tps)
    return _object(body).encode("utf-8", "replace")


def consume_stats_text(stats: ConsumeStats, line: Line) -> str:
    """Return the JSON text of a ConsumeStats."""
    queues = {}
    for queue, one in stats.queues.items():
        fields = {"brokerOffset": one.broker_offset, "consumerOffset": one.consumer_offset}
        fields["lastTimestamp"] = one.last_ms
        if line.admin.tells_pull_offsets:
            fields["pullOffset"] = one.pull_offset
        queues[queue] = _object({name: str(value) for name, value in fields.items()})
    table = by_queue(queues, concurrent=line.admin.stats_tables_are_concurrent)
    return _object({"consumeTps": double(stats.tps), "offsetTable": table})


def consume_stats(stats: ConsumeStats, line: Line) -> bytes:
    """Return the body of GET_CONSUME_STATS (208)."""
    return consume_stats_text(stats, line).encode("utf-8", "replace")


def broker_consume_stats(groups: Mapping[str, list[ConsumeStats]], address: str, line: Line) -> bytes:
    """Return the body of GET_BROKER_CONSUME_STATS (317): each group's topics."""
    every = [stats for listed in groups.values() for stats in listed]
    listed = _list(
        _object({_name(group): _list(consume_stats_text(one, line) for one in stats)})
        for group, stats in groups.items()
    )
    body = {
        "brokerAddr": fastjson.dumps(address),
        "consumeStatsList": listed,
        "totalDiff": str(sum(stats.total_diff for stats in every)),
    }
    if line.admin.tells_pull_offsets:
        body["totalInflightDiff"] = str(sum(stats.inflight_diff for stats in every))
    return _object(body).encode("utf-8", "replace")


def _name(text: str) -> str:
    """A key, as it stands between quotes."""
    return fastjson.dumps(text)[1:-1]


def connection(client: Connected) -> Json:
    """Return the JSON fields of a Connection."""
    return {
        "clientAddr": client.address, "clientId": client.client_id, "language": client.language,
        "version": client.version,
    }  # fmt: skip


def consumer_connection(
    clients: Iterable[Connected],
    subscriptions: Mapping[str, Json],
    consume_type: str,
    message_model: str,
    consume_from_where: str,
) -> Json:
    """Return the body of GET_CONSUMER_CONNECTION_LIST (203)."""
    topics = java_order(subscriptions, CONCURRENT_CAPACITY)
    return {
        "connectionSet": [connection(client) for client in clients],
        "consumeFromWhere": consume_from_where,
        "consumeType": consume_type,
        "messageModel": message_model,
        "subscriptionTable": {topic: subscription(topic, subscriptions[topic]) for topic in topics},
    }


def subscription(topic: str, of: Json) -> Json:
    """Return the JSON fields of a SubscriptionData."""
    return {
        "classFilterMode": bool(of.get("classFilterMode")),
        "codeSet": hash_map_order(of.get("codeSet") or ()),
        "expressionType": of.get("expressionType") or "TAG",
        "subString": of.get("subString") or "",
        "subVersion": of.get("subVersion") or 0,
        "tagsSet": hash_map_order(of.get("tagsSet") or ()),
        "topic": topic,
    }


def all_producers(groups: Mapping[str, Iterable[Connected]]) -> Json:
    """Return the body of GET_ALL_PRODUCER_INFO (328)."""
    return {"data": {
        group: [
            {
                "clientId": one.client_id, "language": one.language, "lastUpdateTimestamp": one.last_update_ms,
                "remoteIP": one.address, "version": one.version,
            }
            for one in clients
        ]
        for group, clients in groups.items()
    }}  # fmt: skip


def offsets_of(body: bytes | memoryview, field: str, what: str) -> dict[Place, int]:
    """A table by queue that a client says. Raises MalformedJson."""
    if len(body) > CLIENT_BODY_BYTES_MAX:
        raise MalformedJson(what, f"it has {len(body)} bytes")
    text = with_text_keys(bytes(body).decode("utf-8", "replace"))
    value = fastjson.sent(text.encode(), what, 2 * CLIENT_BODY_BYTES_MAX)
    table = JavaFields(value, what).value(field) if value is not None else None
    offsets = {}
    for key, offset in (table if isinstance(table, dict) else {}).items():
        queue = JavaFields(fastjson.sent(key.encode(), what, len(key.encode())), what, "a queue")
        try:
            named = str(queue.text("topic")), str(queue.text("brokerName")), queue.number("queueId")
            offsets[Place(*named)] = whole_of(offset) or 0
        except ValueError as wrong:
            raise MalformedJson(what, str(wrong)) from None
    return offsets


def offsets_text(table: Mapping[Place, int]) -> str:
    """A table of offsets by queue."""
    return by_queue({queue: str(offset) for queue, offset in table.items()})


def reset_offsets(table: Mapping[Place, int]) -> bytes:
    """222's answer, and 220's body."""
    return _object({"offsetTable": offsets_text(table)}).encode("utf-8", "replace")


def reset_offsets_listed(table: Mapping[Place, int]) -> bytes:
    """220's body where a client in C++ asked: a list."""
    rows = [
        {"brokerName": queue.broker, "offset": offset, "queueId": queue.queue_id, "topic": queue.topic}
        for queue, offset in table.items()
    ]
    return fastjson.dumps({"offsetTable": rows}).encode("utf-8", "replace")


def consumer_status(tables: Mapping[str, Mapping[Place, int]]) -> bytes:
    """Return the body of INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): the offset table that each client sent."""
    ordered = {_name(client): offsets_text(tables[client]) for client in hash_map_order(tables)}
    return _object({"consumerTable": _object(ordered), "messageQueueTable": "{}"}).encode("utf-8", "replace")


def moment(milliseconds: int) -> str:
    """UtilAll.formatDate with yyyy-MM-dd#HH:mm:ss:SSS, in local time."""
    try:
        local = datetime.fromtimestamp(milliseconds // 1000)
    except (OverflowError, OSError, ValueError):
        return str(milliseconds)
    return f"{local:%Y-%m-%d#%H:%M:%S}:{milliseconds % 1000:03d}"


def time_spans(spans: Iterable[TimeSpan]) -> Json:
    """Return the body of QUERY_CONSUME_TIME_SPAN (303)."""
    return {"consumeTimeSpanSet": [
        {
            "consumeTimeStamp": span.consumed_ms, "consumeTimeStampStr": moment(span.consumed_ms),
            "delayTime": span.delay_ms, "maxTimeStamp": span.max_ms, "maxTimeStampStr": moment(span.max_ms),
            "messageQueue": span.queue.value(), "minTimeStamp": span.min_ms, "minTimeStampStr": moment(span.min_ms),
        }
        for span in spans
    ]}  # fmt: skip


def stats_data(minute: Json, hour: Json, day: Json) -> bytes:
    """315: each with sum, tps and avgpt."""
    items = {
        name: _object({"avgpt": double(of["avgpt"]), "sum": str(of["sum"]), "tps": double(of["tps"])})
        for name, of in (("statsDay", day), ("statsHour", hour), ("statsMinute", minute))
    }
    return _object(items).encode()
