"""From a request to what is stored: what a broker does to a message between its processor and its log.

Implements: SendMessageProcessor.sendMessage and handleRetryAndDLQ, HookUtils (5.x), CommitLog.asyncPutMessage up to the
encoder (spec: store-formats, sections 3, 5, 8)
Pure: requests, the broker's facts and the time in, messages out. The writer gives offsets and store time. Java's
messages carry a property string beside their map, and the two differ at times: `Stored` has both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from store.errors import InvalidMessage, PropertiesTooLarge
from store.message.delay import SCHEDULE_TOPIC
from store.message.host import Host
from store.message.properties import (
    CLUSTER,
    DELAY,
    INNER_NUM,
    MAX_PROPERTIES_BYTES,
    MSG_REGION,
    MULTI_DISPATCH,
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    POP_CHECK,
    PROPERTY_CRC,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TRACE_ON,
    TRANSACTION_ID,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    WAIT,
    utf16_length,
)
from store.message.record import (
    MAX_RECORD_OVERHEAD_BYTES,
    MAX_TOPIC_BYTES,
    MAX_TOPIC_BYTES_V2,
    NO_HOST,
    TRANSACTION_MASK,
    SysFlag,
    goes_to_queue,
)
from store.message.topics import DEAD_PREFIX, HALF_TOPIC, RETRY_PREFIX, TIMER_TOPIC, TOPIC_PATTERN, is_not_for_clients
from store.put.java_map import JavaMap
from store.put.policy import Facts, parse_properties, property_text, text_bytes

TIMER = "timer"  # the field that is wrong in a message with a time of its own
TIMERS = (TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS)
POLICY_PROPERTIES = frozenset(
    (  # what makes a broker do more to a message than to add properties
        WAIT,
        POP_CHECK,
        TRANSACTION_PREPARED,
        PROPERTY_CRC,
        INNER_NUM,
        DELAY,
        MULTI_DISPATCH,
        *TIMERS,
    )
)
INT_MIN, INT_MAX, LONG_MAX = -(1 << 31), (1 << 31) - 1, (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequest:
    """A SEND_MESSAGE request: its header's fields, and its body. `properties` is the string as the client sent it.

    `batch`: the body is a classic batch (request code 320). `max_reconsume_times`: of the header, else of the group.
    """

    topic: str
    body: bytes
    queue_id: int = 0
    sys_flag: int = 0
    flag: int = 0
    born_timestamp_ms: int = 0
    born_host: Host = NO_HOST
    properties: str = ""
    reconsume_times: int = 0
    max_reconsume_times: int = 16
    batch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A message on its way into the log. `properties` is what is written, `fields` what later steps look at.

    `raw_properties`: what is written instead, where a client's bytes are taken as they are (batches).
    """

    topic: str
    queue_id: int
    body: bytes
    properties: str
    fields: JavaMap
    sys_flag: int = 0
    flag: int = 0
    born_timestamp_ms: int = 0
    born_host: Host = NO_HOST
    store_host: Host = NO_HOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    raw_properties: bytes | None = None

    @property
    def delay_level(self) -> int:
        """Return the message's delay level, 0 without one. Raises InvalidMessage."""
        return _delay_level(self.fields)

    @property
    def waits(self) -> bool:
        """MessageExt.isWaitStoreMsgOK: whether its client waits for more than that it is appended."""
        return self.fields.get(WAIT, "true").lower() == "true"

    @property
    def is_counted(self) -> bool:
        """Whether it takes an offset of its queue: prepared and rollback messages do not."""
        return goes_to_queue(self.sys_flag)


def java_int(text: str, name: str, low: int, high: int) -> int:
    """A property as Java's parseInt or parseLong takes it. Raises InvalidMessage."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(high))) or not low <= int(text) <= high:
        thrown = f'java.lang.NumberFormatException: For input string: "{text}"'
        raise InvalidMessage(f"property {name}", f"{text!r} is not a number that Java accepts for it", thrown)
    return int(text)


def received(request: SendRequest, facts: Facts, unique_key: str) -> Stored:
    """Return what a broker makes of a request that is not a batch, before it goes to the store. Raises InvalidMessage.

    `unique_key` is the UNIQ_KEY given to a message that has none, where the broker does that.
    """
    policy = facts.policy
    check_topic(request.topic)
    fields = parse_properties(policy, reserved_removed(request.properties, facts))
    topic, queue_id = request.topic, request.queue_id
    if _is_dead(request, facts):
        topic, queue_id = DEAD_PREFIX + topic.removeprefix(RETRY_PREFIX), 0
        if policy.told_dead:
            fields.put(DELAY, "-1")
    if policy.adds_unique_key and not fields.get(UNIQ_KEY):
        fields.put(UNIQ_KEY, unique_key)
    fields.put(CLUSTER, facts.cluster_name)
    wait = fields.pop(WAIT, None) if policy.removes_wait else None
    text = property_text(policy, fields)
    if wait is not None:
        fields.put(WAIT, wait)
    stored = Stored(
        topic=topic,
        queue_id=queue_id,
        body=request.body,
        properties=text,
        fields=fields,
        sys_flag=sys_flag_of(request, topic, facts),
        flag=request.flag,
        born_timestamp_ms=request.born_timestamp_ms,
        born_host=request.born_host,
        store_host=facts.store_host,
        reconsume_times=request.reconsume_times,
    )
    return half_message(stored, facts) if is_half(fields, stored.reconsume_times, facts) else stored


def is_half(fields: JavaMap, reconsume_times: int, facts: Facts) -> bool:
    """Whether a message with these properties waits for the end of its transaction. Raises InvalidMessage."""
    if fields.get(TRANSACTION_PREPARED, "").lower() != "true":
        return False
    return facts.policy.half_when_retried or not (reconsume_times > 0 and _delay_level(fields) > 0)


def _delay_level(fields: JavaMap) -> int:
    return java_int(fields.get(DELAY, "0"), DELAY, INT_MIN, INT_MAX)


def check_topic(topic: str) -> None:
    """AbstractSendMessageProcessor.msgCheck, as far as the topic's name tells. Raises InvalidMessage."""
    if not TOPIC_PATTERN.fullmatch(topic) or len(topic) > MAX_TOPIC_BYTES:
        reason = f"1 to {MAX_TOPIC_BYTES} characters of % | a-z A-Z 0-9 _ - are allowed"
        raise InvalidMessage(f"topic {topic!r}", reason)
    if is_not_for_clients(topic):
        raise InvalidMessage(f"topic {topic}", "it belongs to the broker; clients cannot send to it")


def reserved_removed(properties: str, facts: Facts) -> str:
    """The client's properties as the broker's processor goes on with them (5.x: written out again)."""
    policy = facts.policy
    if not policy.adds_region:
        return properties
    fields = parse_properties(policy, properties)
    fields.put(MSG_REGION, facts.region_id)
    fields.put(TRACE_ON, "true" if facts.trace_on else "false")
    if policy.removes_pop_check:
        fields.pop(POP_CHECK, None)
    return property_text(policy, fields)


def _is_dead(request: SendRequest, facts: Facts) -> bool:
    if not request.topic.startswith(RETRY_PREFIX):
        return False
    over = request.reconsume_times - request.max_reconsume_times
    return over >= 0 if facts.policy.dead_at_limit else over > 0


def sys_flag_of(request: SendRequest, topic: str, facts: Facts) -> int:
    """The request's flags, with that of a topic of several tags."""
    return request.sys_flag | (SysFlag.MULTI_TAGS if topic in facts.multi_tag_topics else 0)


def half_message(stored: Stored, facts: Facts) -> Stored:
    """A prepared message: kept in the half topic, as an ordinary message of it, until its transaction ends."""
    fields = stored.fields
    if facts.policy.adds_transaction_id and fields.get(UNIQ_KEY):
        fields.put(TRANSACTION_ID, fields[UNIQ_KEY])
    moved = _moved(stored, HALF_TOPIC, 0, facts)
    return replace(moved, sys_flag=stored.sys_flag & ~TRANSACTION_MASK)


def _moved(stored: Stored, topic: str, queue_id: int, facts: Facts) -> Stored:
    """Move a message to another queue for the time being; its own is kept in properties, which are written anew."""
    stored.fields.put(REAL_TOPIC, stored.topic)
    stored.fields.put(REAL_QUEUE_ID, str(stored.queue_id))
    return replace(stored, topic=topic, queue_id=queue_id, properties=property_text(facts.policy, stored.fields))


def hooked(stored: Stored, facts: Facts) -> Stored:
    """Return what the store does to any message first: checks, and the way of delayed ones. Raises InvalidMessage."""
    _check(stored, facts)
    return _delayed(stored, facts) if stored.is_counted else stored


def to_log(stored: Stored, facts: Facts) -> Stored:
    """Return what the store does to a single message before it encodes it. Raises InvalidMessage."""
    stored = hooked(stored, facts)
    _check_inner(stored, facts)  # once more: it may have another topic now
    if facts.appends_crc and PROPERTY_CRC in stored.fields:
        del stored.fields[PROPERTY_CRC]
        stored = replace(stored, properties=_without(stored.properties, PROPERTY_CRC))
    return stored


def _without(properties: str, name: str) -> str:
    """MessageUtils.deleteProperty, of a string that the broker wrote."""
    begin = name + NAME_SEPARATOR
    return PAIR_SEPARATOR.join(part for part in properties.split(PAIR_SEPARATOR) if not part.startswith(begin))


def _delayed(stored: Stored, facts: Facts) -> Stored:
    """Move a message with a delay level to its level's queue. Raises InvalidMessage for one with a time (5.x).

    HookUtils.handleScheduleMessage of a broker without a timer wheel.
    """
    fields, level = stored.fields, stored.delay_level
    if facts.policy.timers and stored.topic != TIMER_TOPIC:
        if level > 0:
            for name in TIMERS:
                fields.pop(name, None)
        elif TIMER_OUT_MS not in fields and any(name in fields for name in TIMERS):
            raise InvalidMessage(TIMER, "this broker has no timer wheel, only delay levels (property DELAY)")
    if level <= 0:
        return stored
    if level > facts.delay_level_max:
        level = facts.delay_level_max
        fields.put(DELAY, str(level))
    return _moved(stored, SCHEDULE_TOPIC, level - 1, facts)


def _check(stored: Stored, facts: Facts) -> None:
    """Check what the store refuses before it looks any closer. Raises InvalidMessage."""
    policy, topic_bytes = facts.policy, len(text_bytes(stored.topic))
    long_allowed = policy.long_retry_topics and stored.topic.startswith(RETRY_PREFIX)
    topic_max = MAX_TOPIC_BYTES_V2 if long_allowed else MAX_TOPIC_BYTES
    if not 0 < topic_bytes <= topic_max:
        raise InvalidMessage("topic", f"{topic_bytes} bytes long, allowed are 1 to {topic_max}")
    if policy.measures_text and utf16_length(stored.properties) > MAX_PROPERTIES_BYTES:
        length = utf16_length(stored.properties)
        raise InvalidMessage("properties", f"{length} characters with the broker's own, at most {MAX_PROPERTIES_BYTES}")
    if not stored.body and not policy.stores_empty_bodies:
        raise InvalidMessage("body", "RocketMQ 5.x refuses an empty one")
    _check_inner(stored, facts)


def _check_inner(stored: Stored, facts: Facts) -> None:
    if facts.policy.inner_batches:
        is_inner = bool(stored.sys_flag & SysFlag.INNER_BATCH)
        if is_inner and stored.topic not in facts.batch_topics:
            raise InvalidMessage("sysFlag", f"an inner batch, but topic {stored.topic} has no batch queues")
        if not is_inner and INNER_NUM in stored.fields:
            raise InvalidMessage(f"property {INNER_NUM}", "the message is not an inner batch")


def check_sizes(body_bytes: int, record_bytes: int, properties_bytes: int, facts: Facts) -> None:
    """The encoder's limits. Raises PropertiesTooLarge, InvalidMessage."""
    if properties_bytes > MAX_PROPERTIES_BYTES:
        raise PropertiesTooLarge(properties_bytes, MAX_PROPERTIES_BYTES)
    if body_bytes > facts.message_bytes_max:
        raise InvalidMessage("body", f"{body_bytes} bytes, maxMessageSize is {facts.message_bytes_max}")
    if record_bytes > facts.message_bytes_max + MAX_RECORD_OVERHEAD_BYTES:
        limit = facts.message_bytes_max + MAX_RECORD_OVERHEAD_BYTES
        raise InvalidMessage("record", f"{record_bytes} bytes, at most {limit} (maxMessageSize and 64 KiB)")
