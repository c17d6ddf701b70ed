"""The property string of a record, and what Java makes of its texts: string hash, tags code, decoding.

Implements: MessageDecoder.string2messageProperties and messageProperties2String, String.hashCode,
    MessageExtBrokerInner.tagsString2tagsCode, MessageDecoder.createCrc32 (spec: store-formats, section 3)
Text is `name 0x01 value 0x02 name 0x01 value`, with or without a last 0x02 depending on the writer's version. A part
without a name, a separator or a value is dropped in silence, as RocketMQ does; of equal names the last one counts.

A 5.x broker can end a record with a CRC over all bytes of the record before it: the property `__CRC32#`, twenty bytes
with its separators, whose ten digits are the CRC-32 without its top bit, the least significant first, zeros behind.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache

from store.errors import InvalidMessage

NAME_SEPARATOR, PAIR_SEPARATOR = "\x01", "\x02"
MAX_PROPERTIES_BYTES = 32767
PART_CHARACTERS_MIN = 3
HASHES_CACHED = 4096
TAGS, KEYS, UNIQ_KEY, DELAY, WAIT = "TAGS", "KEYS", "UNIQ_KEY", "DELAY", "WAIT"
CLUSTER, MSG_REGION, TRACE_ON, POP_CHECK = "CLUSTER", "MSG_REGION", "TRACE_ON", "POP_CK"
REAL_TOPIC, REAL_QUEUE_ID, PROPERTY_CRC = "REAL_TOPIC", "REAL_QID", "__CRC32#"
TAG_TYPE = "T"  # RocketMQ 5.4 and later put topic#T#tag into the index, too
INNER_PREFIX = "INNER_"
INNER_NUM, INNER_BASE = "INNER_NUM", "INNER_BASE"  # of an inner batch: how many messages, queue offset of the first
MULTI_DISPATCH, MULTI_QUEUE_OFFSET = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"  # further queues, offsets there
TRANSACTION_PREPARED, TRANSACTION_ID, PRODUCER_GROUP = "TRAN_MSG", "__transactionId__", "PGROUP"
CHECK_TIMES, PREPARED_QUEUE_OFFSET = "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"
RETRY_TOPIC, ORIGIN_MESSAGE_ID = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"
RECONSUME_TIME, MAX_RECONSUME_TIMES = "RECONSUME_TIME", "MAX_RECONSUME_TIMES"
TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS = "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"
TIMER_OUT_MS, TIMER_DEL_UNIQUE_KEY = "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY"
IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
REPLY_TO_CLIENT, PUSH_REPLY_TIME = "REPLY_TO_CLIENT", "PUSH_REPLY_TIME"
# MessageConst.STRING_HASH_SET: what clients and brokers keep for themselves
RESERVED_NAMES = frozenset({
    TAGS, KEYS, UNIQ_KEY, DELAY, WAIT, CLUSTER, MSG_REGION, TRACE_ON, POP_CHECK, REAL_TOPIC, REAL_QUEUE_ID,
    PROPERTY_CRC, INNER_NUM, INNER_BASE, MULTI_DISPATCH, MULTI_QUEUE_OFFSET, TRANSACTION_PREPARED, TRANSACTION_ID,
    PRODUCER_GROUP, CHECK_TIMES, PREPARED_QUEUE_OFFSET, RETRY_TOPIC, ORIGIN_MESSAGE_ID, TIMER_DELIVER_MS,
    TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_OUT_MS, TIMER_DEL_UNIQUE_KEY, PUSH_REPLY_TIME,
    *"1ST_POP_TIME ARRIVE_TIME BORN_TIMESTAMP BUYER_ID CONSUME_START_TIME CORRECTION_FLAG DLQ_ORIGIN_MESSAGE_ID "
    "DLQ_ORIGIN_TOPIC DUP_INFO EXTEND_UNIQ_INFO INSTANCE_ID MAX_OFFSET MAX_RECONSUME_TIMES MIN_OFFSET MQ2_FLAG "
    "MSG_TYPE POP_CK_OFFSET RECONSUME_TIME TIMER_DELAY_LEVEL TIMER_DEQUEUE_MS TIMER_ENQUEUE_MS "
    "TIMER_ROLL_TIMES TRANSFER_FLAG".split(),
})  # fmt: skip

CRC_MASK = 0x7FFFFFFF  # UtilAll.crc32: Java keeps a CRC-32 as an int that is not negative
CRC_DIGITS = 10
CRC_HEAD, CRC_TAIL = (PROPERTY_CRC + NAME_SEPARATOR).encode(), PAIR_SEPARATOR.encode()
CRC_PROPERTY_BYTES = len(CRC_HEAD) + CRC_DIGITS + len(CRC_TAIL)


def _java_replacement(error: UnicodeError) -> tuple[str, int]:
    """Java decodes the three bytes of a lone surrogate to one U+FFFD; Python would make three of them."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    start, data = error.start, error.object
    rest = data[start + 1 : start + 3]
    if data[start] == 0xED and len(rest) == 2 and 0xA0 <= rest[0] <= 0xBF and 0x80 <= rest[1] <= 0xBF:
        return "\ufffd", start + 3
    return "\ufffd", error.end


codecs.register_error("slipstream.java", _java_replacement)


def java_text(raw: bytes | memoryview) -> str:
    """The text as `new String(raw, UTF_8)` makes it."""
    return str(raw, "utf-8", "slipstream.java")


def parse(raw: bytes | memoryview) -> dict[str, str]:
    """The properties by name, in the order of the record."""
    return parse_text(java_text(raw))


def parse_text(text: str) -> dict[str, str]:
    """Parse properties like `parse`, but from decoded text."""
    properties: dict[str, str] = {}
    for part in text.split(PAIR_SEPARATOR):
        name, _, value = part.partition(NAME_SEPARATOR)
        # one supplementary character counts as two in Java, so only parts shorter than three here need a closer look
        if name and value and (len(part) >= PART_CHARACTERS_MIN or utf16_length(part) >= PART_CHARACTERS_MIN):
            properties[name] = value
    return properties


def format(pairs: Mapping[str, str] | Iterable[tuple[str, str]], trailing_separator: bool = True) -> bytes:
    """The bytes of these properties, in this order. Raises InvalidMessage."""
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    parts = []
    for name, value in items:
        _check(name, value)
        parts.append(f"{name}{NAME_SEPARATOR}{value}")
    text = PAIR_SEPARATOR.join(parts)
    if parts and trailing_separator:
        text += PAIR_SEPARATOR
    raw = text.encode("utf-8", "replace")
    if len(raw) > MAX_PROPERTIES_BYTES:
        raise InvalidMessage("properties", f"{len(raw)} bytes, the limit is {MAX_PROPERTIES_BYTES}")
    return raw


def _check(name: str, value: str) -> None:
    for text in (name, value):
        if not text:
            raise InvalidMessage("properties", f"{name!r} = {value!r}: name and value must not be empty")
        if NAME_SEPARATOR in text or PAIR_SEPARATOR in text:
            raise InvalidMessage("properties", f"{name!r} = {value!r}: 0x01 and 0x02 separate properties")


def utf16_length(text: str) -> int:
    """The length that Java gives the text."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2


def utf16_units(text: str) -> memoryview | bytes:
    """The text's UTF-16 units, as Java's toCharArray."""
    if text.isascii():
        return text.encode("ascii")
    return memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")


def utf16_sort_key(text: str) -> bytes:
    """Return a key that sorts texts like Java's String.compareTo."""
    return text.encode("utf-16-be", "surrogatepass")


@lru_cache(maxsize=HASHES_CACHED)
def java_hash(text: str) -> int:
    """Java's String.hashCode: signed, 32 bits."""
    value = 0
    for unit in utf16_units(text):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def tags_code(tags: str | None) -> int:
    """Return what a consume queue entry says about the tags: 0 without any."""
    return java_hash(tags) if tags else 0


def crc_property(record_before: bytes | memoryview) -> bytes:
    """The property for a record whose bytes before it are these."""
    crc = zlib.crc32(record_before) & CRC_MASK
    return CRC_HEAD + f"{crc:0{CRC_DIGITS}d}"[::-1].encode() + CRC_TAIL


def has_crc_property(record: bytes | memoryview) -> bool:
    """Whether the record ends in such a property."""
    last = bytes(record[-CRC_PROPERTY_BYTES:])
    return last.startswith(CRC_HEAD) and last.endswith(CRC_TAIL) and last[len(CRC_HEAD) : -1].isdigit()


def crc_reason(record: bytes | memoryview) -> str:
    """Return why a record's property CRC is wrong; empty when it is right or missing."""
    if not has_crc_property(record):
        return ""
    expected = crc_property(memoryview(record)[:-CRC_PROPERTY_BYTES])
    stored = bytes(record[-CRC_PROPERTY_BYTES:])
    if stored == expected:
        return ""
    stored_digits, right = (text[len(CRC_HEAD) : -1][::-1].decode() for text in (stored, expected))
    return f"its bytes have CRC {int(right):#x}, its property {PROPERTY_CRC} says {int(stored_digits):#x}"


def keys_of(texts: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return what the index holds of a message with these properties, in the order that it is put.

    The unique key, if there is one, and the parts of KEYS that are not empty.
    """
    unique = texts.get(UNIQ_KEY)
    return [unique] if unique is not None else [], [part for part in texts.get(KEYS, "").split(" ") if part]
