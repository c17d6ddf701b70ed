"""One message as bytes in the commit log: the only place that knows the layout, and that says what lies at a position.

Implements: CommitLog.checkMessageAndReturnSize, MessageDecoder.decode, MessageExtEncoder
spec: store-formats, sections 1, 2, 4, 6
`RECORD_FIELDS` is the layout; the codec, the numpy types and the table of FORMAT.md derive from it. All integers are
big-endian. Hosts take 8 bytes, or 20 when the system flag says IPv6, and move what lies behind them.
`inspect` is the judge: a message is only one if its size adds up and its physical offset names its own position.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import Enum, IntFlag
from typing import Any, NamedTuple

import numpy as np

from store.errors import CorruptRecord, InvalidMessage
from store.message import properties as property_string
from store.message.host import Host, offset_message_id, pack_host, unpack_host
from store.message.measure import Spans, measure

MAGIC_V1, MAGIC_V2, BLANK_MAGIC = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
BLANK_BYTES = 8  # a blank record's own bytes; a message goes into a segment only if these still fit behind it
MAX_RECORD_OVERHEAD_BYTES = 64 * 1024  # RocketMQ's room for everything of a record but its body
MAX_TOPIC_BYTES = 127  # version 1: the length is a signed byte
MAX_TOPIC_BYTES_V2 = 255  # version 2 could hold more; a topic is a directory's name
CRC_MASK = property_string.CRC_MASK


class SysFlag(IntFlag):
    """Bits of a message's sysFlag, like MessageSysFlag."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_LZ4 = 0x100
    COMPRESSION_ZSTD = 0x200
    COMPRESSION_ZLIB = 0x300


TRANSACTION_MASK, COMPRESSION_MASK = 0xC, 0x700
BORN_V6, STORE_V6 = int(SysFlag.BORN_HOST_V6), int(SysFlag.STORE_HOST_V6)
HOST_MASK = BORN_V6 | STORE_V6
NOT_FOR_QUEUES = int(SysFlag.TRANSACTION_PREPARED)  # this bit is set in prepared and rolled back ones, in no commit


def goes_to_queue(sys_flag: int) -> bool:
    """Whether consumers see the message: prepared and rolled back ones have no entry in a queue."""
    return sys_flag & NOT_FOR_QUEUES == 0


class Field(NamedTuple):
    """A line of the layout. `code` is a numpy type, or what the length depends on."""

    name: str
    code: str
    rocketmq: str
    meaning: str


HEADER_FIELDS = (
    Field("total_size", ">i4", "TOTALSIZE", "bytes in the whole record, these four included"),
    Field("magic_code", ">u4", "MAGICCODE", "0xDAA320A7 (v1), 0xDAA320AB (v2) when the topic length takes two bytes"),
    Field("body_crc", ">i4", "BODYCRC", "CRC-32 of the stored body with the top bit cleared"),
    Field("queue_id", ">i4", "QUEUEID", "queue of the topic"),
    Field("flag", ">i4", "FLAG", "the user's own, opaque"),
    Field("queue_offset", ">i8", "QUEUEOFFSET", "number of the message in its queue, in entries"),
    Field("physical_offset", ">i8", "PHYSICALOFFSET", "log offset of this record's first byte"),
    Field("sys_flag", ">i4", "SYSFLAG", "bits, see below"),
    Field("born_timestamp_ms", ">i8", "BORNTIMESTAMP", "when the producer made it"),
)
RECORD_FIELDS = (
    *HEADER_FIELDS,
    Field("born_host", "host", "BORNHOST", "the producer: address (4 or 16 bytes), port (4)"),
    Field("store_timestamp_ms", ">i8", "STORETIMESTAMP", "when the master stored it; never falls along the log"),
    Field("store_host", "host", "STOREHOST", "the master: address (4 or 16 bytes), port (4)"),
    Field("reconsume_times", ">i4", "RECONSUMETIMES", "how often consumers sent it back"),
    Field("prepared_transaction_offset", ">i8", "PREPAREDTRANSACTIONOFFSET", "log offset of the half message, else 0"),
    Field("body_length", ">i4", "BODYLENGTH", "bytes of the body"),
    Field("body", "bytes", "BODY", "as it was sent, compressed or not"),
    Field("topic_length", "u1 or >u2", "TOPICLENGTH", "bytes of the topic: one byte in v1 (at most 127), two in v2"),
    Field("topic", "utf-8", "TOPIC", "name of the topic"),
    Field("properties_length", ">i2", "PROPERTIESLENGTH", "bytes of the properties, at most 32767"),
    Field("properties", "utf-8", "PROPERTIES", "name 0x01 value 0x02 name 0x01 value, with or without a last 0x02"),
)
FIXED_FIELDS = RECORD_FIELDS[: [field.name for field in RECORD_FIELDS].index("body")]
HEADER_DTYPE = np.dtype([(field.name, field.code) for field in HEADER_FIELDS])


def fixed_dtype(sys_flag: int) -> np.dtype[Any]:
    """The type of everything before the body, for records with these host families; hosts are address and port."""
    fields: list[tuple[str, Any]] = []
    for name, code, _, _ in FIXED_FIELDS:
        bit = BORN_V6 if name == "born_host" else STORE_V6
        host = [("address", "V16" if sys_flag & bit else "V4"), ("port", ">i4")]
        fields.append((name, host if code == "host" else code))
    return np.dtype(fields)


class _Family(NamedTuple):
    """The layout for one combination of host families."""

    fixed: struct.Struct
    store_timestamp_at: int
    body_length_at: int
    body_at: int
    dtype: np.dtype[Any]


def _family(sys_flag: int) -> _Family:
    dtype = fixed_dtype(sys_flag)
    codes = {">i4": "i", ">u4": "I", ">i8": "q"}
    hosts = {"born_host": "20s" if sys_flag & BORN_V6 else "8s", "store_host": "20s" if sys_flag & STORE_V6 else "8s"}
    fixed = struct.Struct(">" + "".join(hosts.get(field.name) or codes[field.code] for field in FIXED_FIELDS))
    assert fixed.size == dtype.itemsize
    return _Family(fixed, _at(dtype, "store_timestamp_ms"), _at(dtype, "body_length"), fixed.size, dtype)


def _at(dtype: np.dtype[Any], name: str) -> int:
    assert dtype.fields is not None
    return int(dtype.fields[name][1])


FAMILIES = {bits: _family(bits) for bits in (0, BORN_V6, STORE_V6, BORN_V6 | STORE_V6)}
MAGIC_AT, BODY_CRC_AT = _at(HEADER_DTYPE, "magic_code"), _at(HEADER_DTYPE, "body_crc")
QUEUE_ID_AT, FLAG_AT = _at(HEADER_DTYPE, "queue_id"), _at(HEADER_DTYPE, "flag")
QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT = _at(HEADER_DTYPE, "queue_offset"), _at(HEADER_DTYPE, "physical_offset")
SYS_FLAG_AT, BORN_TIMESTAMP_AT = _at(HEADER_DTYPE, "sys_flag"), _at(HEADER_DTYPE, "born_timestamp_ms")
BORN_HOST_AT = HEADER_DTYPE.itemsize
FIXED_BYTES = FAMILIES[0].body_at + 1 + 2  # the shortest record: no body, no topic, no properties, IPv4 hosts
V6_EXTRA_BYTES = FAMILIES[BORN_V6].body_at - FAMILIES[0].body_at

_SHAPE = struct.Struct(">iI")  # total_size, magic_code: what a blank record has, too
_INT64 = struct.Struct(">q")
_IDENTITY = struct.Struct(">qi")  # physical_offset, sys_flag: neighbours
assert PHYSICAL_OFFSET_AT + _INT64.size == SYS_FLAG_AT
_INT32, _INT16, _UINT16, _UINT8 = (struct.Struct(code) for code in (">i", ">h", ">H", ">B"))


def store_timestamp_at(sys_flag: int) -> int:
    """Return where the store timestamp lies in a record with these host families."""
    return FAMILIES[sys_flag & HOST_MASK].store_timestamp_at


def identity_at(view: memoryview | bytes, position: int) -> tuple[int, int]:
    """What the record at `position` says of its physical offset, and its system flag."""
    physical_offset, sys_flag = _IDENTITY.unpack_from(view, position + PHYSICAL_OFFSET_AT)
    return physical_offset, sys_flag


def store_host_at(sys_flag: int) -> int:
    """Return where the store host lies in a record with these host families."""
    return _at(FAMILIES[sys_flag & HOST_MASK].dtype, "store_host")


def shape_at(view: memoryview | bytes, position: int) -> tuple[int, int]:
    """The size and the magic number at `position`, whatever lies there."""
    size, magic = _SHAPE.unpack_from(view, position)
    return size, magic


def store_timestamp_of(view: memoryview | bytes, position: int) -> int | None:
    """The store time of the message at `position`, None when none begins there. Asks for no more than its magic."""
    if len(view) - position < FIXED_BYTES or shape_at(view, position)[1] not in (MAGIC_V1, MAGIC_V2):
        return None
    at = position + store_timestamp_at(identity_at(view, position)[1])
    return int(_INT64.unpack_from(view, at)[0]) if at + _INT64.size <= len(view) else None


def body_length_at(sys_flag: int) -> int:
    """Return where the body's length lies in a record with these host families; the body follows it."""
    return FAMILIES[sys_flag & HOST_MASK].body_length_at


class Kind(Enum):
    """The kinds of what lies at a position of the log."""

    MESSAGE = "message"
    BLANK = "blank"  # the rest of the segment is not used
    END_OF_LOG = "end of log"  # zeros, or no record's magic number
    CORRUPT = "corrupt"
    INCOMPLETE = "incomplete"  # only below a given limit: the record goes on behind it


class Inspection(NamedTuple):
    """Result of `inspect`. `size` leads to the next position; 0: there is no next one."""

    kind: Kind
    size: int
    reason: str = ""


def inspect(
    view: memoryview | bytes,
    position: int,
    physical_offset: int | None,
    *,
    check_body_crc: bool,
    limit: int | None = None,
) -> Inspection:
    """Return what lies at `position` of a segment's bytes, which is `physical_offset` of the log.

    `view` is the whole segment: a blank record reaches its end. With `limit`, bytes from that position on are not
    data yet, and what reaches over it is INCOMPLETE. Never raises for what it finds.
    """
    end = len(view)
    readable = end if limit is None else min(limit, end)
    if readable - position < BLANK_BYTES:
        if readable < end:
            return Inspection(Kind.INCOMPLETE, 0, "less than a record's beginning is there")
        return Inspection(Kind.END_OF_LOG, 0, "the segment ends here")
    size, magic = _SHAPE.unpack_from(view, position)
    if magic == BLANK_MAGIC:
        rest = end - position
        reason = "" if size == rest else f"blank record of {size} bytes, but {rest} are left in the segment"
        return Inspection(Kind.BLANK, rest, reason)
    if magic not in (MAGIC_V1, MAGIC_V2):
        reason = "" if magic == 0 and size == 0 else f"no record's magic number: {magic:#010x}"
        return Inspection(Kind.END_OF_LOG, 0, reason)
    if size < FIXED_BYTES or size > end - position:
        return Inspection(Kind.CORRUPT, 0, f"its size {size} is not between {FIXED_BYTES} and the segment's end")
    if size > readable - position:
        return Inspection(Kind.INCOMPLETE, 0, f"{readable - position} of {size} bytes are there")
    named_offset, sys_flag = _IDENTITY.unpack_from(view, position + PHYSICAL_OFFSET_AT)
    if physical_offset is not None and named_offset != physical_offset:
        return Inspection(Kind.CORRUPT, 0, f"it says it lies at offset {named_offset}")
    spans = _measure(view, position, size, magic, sys_flag)
    if isinstance(spans, str):
        return Inspection(Kind.CORRUPT, size, spans)
    if check_body_crc and (reason := _crc_reason(view, position, spans.body_at, spans.body_end)):
        return Inspection(Kind.CORRUPT, size, reason)
    return Inspection(Kind.MESSAGE, size)


def _measure(view: memoryview | bytes, position: int, size: int, magic: int, sys_flag: int) -> Spans | str:
    """The spans of a record whose `size` bytes are in `view`, or why they do not add up."""
    body_at = position + FAMILIES[sys_flag & HOST_MASK].body_at
    return measure(view, position, position + size, body_at, magic == MAGIC_V2)


def _crc_reason(view: memoryview | bytes, position: int, body_at: int, body_end: int) -> str:
    """Return why the body's CRC is wrong; empty when it is right. Like RocketMQ, an empty body is not checked."""
    if body_end == body_at:
        return ""
    (stored,) = _INT32.unpack_from(view, position + BODY_CRC_AT)
    computed = zlib.crc32(view[body_at:body_end]) & CRC_MASK
    return "" if stored == computed else f"its body has CRC {computed:#x}, stored is {stored:#x}"


@dataclass(frozen=True)
class Message:
    """One message of the log, every field of its record."""

    total_size: int
    magic_code: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: Host
    store_timestamp_ms: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes | memoryview
    topic: str
    properties_raw: bytes

    @property
    def size(self) -> int:
        """Return the record's size in bytes."""
        return self.total_size

    @property
    def properties(self) -> dict[str, str]:
        """The properties by name, parsed once."""
        try:
            return self.__dict__["_properties"]  # type: ignore[no-any-return]
        except KeyError:
            by_name = self.__dict__["_properties"] = property_string.parse(self.properties_raw)
            return by_name

    @property
    def tags(self) -> str | None:
        """Return the message's tags; None without any."""
        return self.properties.get(property_string.TAGS)

    @property
    def keys(self) -> str | None:
        """Return the message's keys, separated by spaces; None without any."""
        return self.properties.get(property_string.KEYS)

    @property
    def tags_code(self) -> int:
        """The hash of its tags (what a queue of a delay topic says instead: store.message.delay)."""
        return property_string.tags_code(self.tags)

    @property
    def message_id(self) -> str:
        """Return the message's offsetMsgId: the host and offset at which it is stored."""
        return offset_message_id(self.store_host, self.physical_offset, bool(self.sys_flag & STORE_V6))


def decode(
    view: memoryview | bytes, offset_in_view: int = 0, *, check_body_crc: bool = True, path: str = ""
) -> Message:
    """The message at `offset_in_view`. Raises CorruptRecord. The body is a slice of `view`, not a copy of a memoryview.

    It does not know where the record should lie: a caller that does calls `inspect` first.
    """
    at = offset_in_view
    if len(view) - at < FIXED_BYTES:
        raise CorruptRecord(path, at, f"{len(view) - at} bytes are less than a record")
    size, magic = _SHAPE.unpack_from(view, at)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise CorruptRecord(path, at, f"no message's magic number: {magic:#010x}")
    physical_offset, sys_flag = _IDENTITY.unpack_from(view, at + PHYSICAL_OFFSET_AT)
    if size < FIXED_BYTES or size > len(view) - at:
        raise CorruptRecord(path, physical_offset, f"its size is {size}, {len(view) - at} bytes are there")
    spans = _measure(view, at, size, magic, sys_flag)
    if isinstance(spans, str):
        raise CorruptRecord(path, physical_offset, spans)
    body_at, body_end, topic_at, topic_end, properties_at, end = spans
    if check_body_crc and (reason := _crc_reason(view, at, body_at, body_end)):
        raise CorruptRecord(path, physical_offset, reason)
    fields = dict(zip(_FIXED_NAMES, FAMILIES[sys_flag & HOST_MASK].fixed.unpack_from(view, at), strict=True))
    del fields["body_length"]
    fields["born_host"], fields["store_host"] = unpack_host(fields["born_host"]), unpack_host(fields["store_host"])
    fields["body"] = view[body_at:body_end]
    fields["topic"] = property_string.java_text(view[topic_at:topic_end])
    fields["properties_raw"] = bytes(view[properties_at:end])
    message = object.__new__(Message)
    object.__setattr__(message, "__dict__", fields)  # __init__ sets field by field: three times the time of all this
    return message


_FIXED_NAMES = tuple(field.name for field in FIXED_FIELDS)
NO_HOST = Host("0.0.0.0", 0)


def encode(
    *,
    topic: str,
    body: bytes | memoryview,
    queue_id: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp_ms: int = 0,
    born_host: Host = NO_HOST,
    store_timestamp_ms: int = 0,
    store_host: Host = NO_HOST,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    properties: bytes = b"",
    magic: int = MAGIC_V1,
) -> bytes:
    """The record of a message. The hosts decide about the IPv6 bits. Raises InvalidMessage."""
    topic_bytes = topic.encode("utf-8")
    topic_max, length = (MAX_TOPIC_BYTES, _UINT8) if magic == MAGIC_V1 else (MAX_TOPIC_BYTES_V2, _UINT16)
    if not 0 < len(topic_bytes) <= topic_max:
        raise InvalidMessage("topic", f"{len(topic_bytes)} bytes long, allowed are 1 to {topic_max}")
    if len(properties) > property_string.MAX_PROPERTIES_BYTES:
        raise InvalidMessage("properties", f"{len(properties)} bytes, at most {property_string.MAX_PROPERTIES_BYTES}")
    born, store = pack_host(born_host), pack_host(store_host)
    sys_flag &= ~HOST_MASK
    sys_flag |= (BORN_V6 if len(born) > 8 else 0) | (STORE_V6 if len(store) > 8 else 0)
    family = FAMILIES[sys_flag & HOST_MASK]
    size = family.body_at + len(body) + length.size + len(topic_bytes) + 2 + len(properties)
    fixed = family.fixed.pack(
        size,
        magic,
        zlib.crc32(body) & CRC_MASK,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp_ms,
        born,
        store_timestamp_ms,
        store,
        reconsume_times,
        prepared_transaction_offset,
        len(body),
    )
    head = length.pack(len(topic_bytes))
    return b"".join((fixed, body, head, topic_bytes, _INT16.pack(len(properties)), properties))


def blank(size: int) -> bytes:
    """The beginning of a blank record that fills the last `size` bytes of a segment; what follows it is left alone."""
    assert size >= BLANK_BYTES
    return _SHAPE.pack(size, BLANK_MAGIC)
