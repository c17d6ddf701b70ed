"""From positions in a mapped segment to Arrow columns: one array operation per field, no Python per record.

Fixed fields are gathered through overlapping big-endian views. Variable ones become Arrow views that point into the
mapping, and are copied once, by Arrow's cast to the type that Spark takes. The rare shapes (IPv6 hosts, magic v2) are
offsets that shift, not branches. Bodies stay as stored: a compressed one is told by sysFlag, and is not inflated here.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_bridge import hosts
from spark_bridge.option_values import InvalidOption, nearest
from spark_bridge.properties import properties_map, property_value
from spark_bridge.row_options import DEFAULT_ROWS, RowOptions
from spark_bridge.scan import LogWindow, Positions
from store.record import (
    BODY_CRC_AT,
    BORN_HOST_AT,
    BORN_TIMESTAMP_AT,
    BORN_V6,
    CRC_MASK,
    FIXED_BYTES,
    FLAG_AT,
    MAGIC_AT,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_V6,
    SYS_FLAG_AT,
    V6_EXTRA_BYTES,
    body_length_at,
    fixed_dtype,
    store_host_at,
    store_timestamp_at,
)

FIXED_OFFSETS = {name: int(place[1]) for name, place in (fixed_dtype(0).fields or {}).items()}
# With two IPv4 hosts; an IPv6 host moves what lies behind it.
STORE_TIMESTAMP_AT, STORE_HOST_AT, BODY_LENGTH_AT = store_timestamp_at(0), store_host_at(0), body_length_at(0)
RECONSUME_TIMES_AT = FIXED_OFFSETS["reconsume_times"]
INT, BIGINT, STRING, BINARY, TIMESTAMP = IntegerType(), LongType(), StringType(), BinaryType(), TimestampType()
STRING_MAP = MapType(STRING, STRING)
INLINE_BYTES = 12  # a view holds what is no longer than this itself

Int32s = npt.NDArray[np.int32]


class Records:
    """Some records of one window; every field is gathered when first asked for, and once."""

    def __init__(self, window: LogWindow, starts: Positions) -> None:
        self.window = window
        self.starts = starts

    def int32_at(self, at: int) -> Int32s:
        """A four-byte field of the header's first 48 bytes."""
        return self.window.int32(self.starts + at)

    def int64_at(self, at: int) -> npt.NDArray[np.int64]:
        """An eight-byte field of the header's first 48 bytes."""
        return self.window.int64(self.starts + at)

    @cached_property
    def sys_flag(self) -> Int32s:
        """Says among other things which hosts are IPv6."""
        return self.int32_at(SYS_FLAG_AT)

    @cached_property
    def born_shift(self) -> Positions | int:
        """By how much an IPv6 born host moves what comes behind it."""
        return self._shift(BORN_V6)

    @cached_property
    def hosts_shift(self) -> Positions | int:
        """By how much both hosts move what comes behind them."""
        return self.born_shift + self._shift(STORE_V6)

    def _shift(self, bit: int) -> Positions | int:
        if not np.bitwise_and(self.sys_flag, bit).any():
            return 0
        return np.where(self.sys_flag & bit, np.int64(V6_EXTRA_BYTES), np.int64(0))

    @cached_property
    def body_at(self) -> Positions:
        """Where each body begins."""
        return self.starts + (BODY_LENGTH_AT + 4) + self.hosts_shift

    @cached_property
    def body_length(self) -> Int32s:
        """Bytes of each body as stored, checked against the record's size."""
        length = self.window.int32(self.body_at - 4)
        longest = self.int32_at(0) - FIXED_BYTES - self.hosts_shift
        self._check((length >= 0) & (length <= longest), "its body reaches beyond its end")
        return length

    @cached_property
    def _topic(self) -> tuple[Positions, Int32s]:
        """Where each topic begins, and its length: one byte, in magic v2 two."""
        at = self.body_at + self.body_length
        length = self.window.bytes[at].astype(np.int32)
        v2 = self.window.view(">u4")[self.starts + MAGIC_AT] == MAGIC_V2
        if v2.any():
            length[v2] = self.window.view(">u2")[at[v2]]
        return at + 1 + v2, length

    @cached_property
    def _properties(self) -> tuple[Positions, Int32s]:
        """Where each property string begins, and its length. All lengths must add up to the record's size."""
        topic_at, topic_length = self._topic
        length_at = topic_at + topic_length
        self._check(length_at + 2 <= self.starts + self.int32_at(0), "its topic reaches beyond its end")
        length = self.window.view(">i2")[length_at].astype(np.int32)
        at = length_at + 2
        self._check(at + length == self.starts + self.int32_at(0), "its lengths do not add up to its size")
        return at, length

    def _check(self, good: npt.NDArray[np.bool_], reason: str) -> None:
        if not good.all():
            raise self.window.corrupt(int(self.starts[np.flatnonzero(~good)[0]]), reason)

    @cached_property
    def topic(self) -> pa.StringArray:
        """Topics, once the whole record was found consistent."""
        assert self._properties is not None  # checks the lengths, the topic's among them
        return _copied(self.window, *self._topic, pa.string())

    @cached_property
    def properties(self) -> pa.StringArray:
        """Property strings, unparsed."""
        return _copied(self.window, *self._properties, pa.string())

    @cached_property
    def store_host_at(self) -> Positions:
        """Where each store host begins."""
        return self.starts + STORE_HOST_AT + self.born_shift

    def check_body_crc(self) -> None:
        """Raise CorruptRecord for the first body whose CRC-32 is not the stored one."""
        stored = self.int32_at(BODY_CRC_AT)
        view = self.window.bytes.data
        spans = zip(self.body_at.tolist(), self.body_length.tolist(), stored.tolist(), strict=True)
        for index, (at, length, expected) in enumerate(spans):
            found = zlib.crc32(view[at : at + length]) & CRC_MASK
            if found != expected and length:
                reason = f"its body has CRC {found:#010x}, not {expected:#010x} as stored"
                raise self.window.corrupt(int(self.starts[index]), reason)


def _copied(window: LogWindow, at: Positions, length: Int32s, kind: Any) -> Any:
    """The byte ranges as one Arrow array of `kind` (string or binary): views into the mapping, copied by the cast."""
    views = np.zeros((len(at), 4), "<i4")
    views[:, 0] = length
    views[:, 3] = at
    short = np.flatnonzero(length <= INLINE_BYTES)
    if len(short):
        views[short, 1:] = _inline(window, at[short])
    view_kind = pa.string_view() if kind == pa.string() else pa.binary_view()
    return pa.Array.from_buffers(view_kind, len(at), [None, pa.py_buffer(views), window.buffer]).cast(kind)


def _inline(window: LogWindow, at: Positions) -> npt.NDArray[np.int32]:
    """The twelve bytes at each position: what a view holds instead of a reference (its length says how many count)."""
    whole = window.view(f"V{INLINE_BYTES}")
    if len(whole) and int(at.max()) < len(whole):
        raw = whole[at].view(np.uint8).reshape(-1, INLINE_BYTES)
    else:
        raw = window.bytes[np.minimum(at[:, None] + np.arange(INLINE_BYTES), window.length - 1)]
    return raw.view(np.int32)


def _timestamps(milliseconds: npt.NDArray[np.int64]) -> pa.TimestampArray:
    return pa.array(milliseconds * 1000).view(pa.timestamp("us", tz="UTC"))


def _host(records: Records, at: Positions, bit: int) -> pa.StringArray:
    return hosts.host_texts(records.window, at, (records.sys_flag & bit) != 0)


def _message_id(records: Records) -> pa.StringArray:
    v6 = (records.sys_flag & STORE_V6) != 0
    return hosts.message_ids(records.window, records.store_host_at, records.starts + PHYSICAL_OFFSET_AT, v6)


class Column(NamedTuple):
    """One column: its name and type in Spark, how it is made, and whether its bytes weigh (a batch is cut by them)."""

    name: str
    spark_type: DataType
    build: Callable[[Records], Any]
    heavy: bool = False


def _int32_column(name: str, at: int) -> Column:
    return Column(name, INT, lambda records: pa.array(records.int32_at(at)))


COLUMNS = (
    Column("topic", STRING, lambda records: records.topic),
    _int32_column("queueId", QUEUE_ID_AT),
    Column("queueOffset", BIGINT, lambda records: pa.array(records.int64_at(QUEUE_OFFSET_AT))),
    Column("physicalOffset", BIGINT, lambda records: pa.array(records.starts + records.window.base_offset)),
    Column("msgId", STRING, _message_id),
    Column("tags", STRING, lambda records: property_value(records.properties, "TAGS")),
    Column("keys", STRING, lambda records: property_value(records.properties, "KEYS")),
    Column("properties", STRING_MAP, lambda records: properties_map(records.properties), heavy=True),
    Column(
        "body",
        BINARY,
        lambda records: _copied(records.window, records.body_at, records.body_length, pa.binary()),
        heavy=True,
    ),
    _int32_column("flag", FLAG_AT),
    Column("sysFlag", INT, lambda records: pa.array(records.sys_flag)),
    Column("bornTimestamp", TIMESTAMP, lambda r: _timestamps(r.int64_at(BORN_TIMESTAMP_AT))),
    Column("bornHost", STRING, lambda r: _host(r, r.starts + BORN_HOST_AT, BORN_V6)),
    Column(
        "storeTimestamp",
        TIMESTAMP,
        lambda r: _timestamps(r.window.int64(r.starts + STORE_TIMESTAMP_AT + r.born_shift)),
    ),
    Column("storeHost", STRING, lambda r: _host(r, r.store_host_at, STORE_V6)),
    Column("reconsumeTimes", INT, lambda r: pa.array(r.window.int32(r.starts + RECONSUME_TIMES_AT + r.hosts_shift))),
    Column("bodyLength", INT, lambda records: pa.array(records.body_length)),
)
BY_NAME = {column.name: column for column in COLUMNS}


def schema_of(names: Sequence[str] | None = None, rows: RowOptions = DEFAULT_ROWS) -> StructType:
    """Spark's schema of the columns named, all of them by default. Raises InvalidOption for an unknown one."""
    return StructType([StructField(column.name, column.spark_type) for column in columns_of(names, rows)])


def columns_of(names: Sequence[str] | None = None, rows: RowOptions = DEFAULT_ROWS) -> list[Column]:
    """The columns named, in that order. Raises InvalidOption for an unknown one."""
    for name in names or ():
        if name not in BY_NAME:
            raise InvalidOption(f"no column {name!r}; {nearest(name, BY_NAME)}")
    return list(COLUMNS) if names is None else [BY_NAME[name] for name in names]


def settled(schema: StructType, rows: RowOptions) -> RowOptions:
    """The options after a look at the schema that was given: each of its columns is one of ours, in its type.

    Raises InvalidOption.
    """
    for given, ours in zip(schema.fields, schema_of(schema.fieldNames(), rows).fields, strict=True):
        if given.dataType != ours.dataType:
            wanted, found = ours.dataType.simpleString(), given.dataType.simpleString()
            raise InvalidOption(f"column {ours.name} is {wanted}, the schema says {found}")
    return rows


def record_batch(records: Records, columns: Sequence[Column], schema: pa.Schema) -> pa.RecordBatch:
    """The columns of some records, exactly in Spark's Arrow schema."""
    arrays = [column.build(records) for column in columns]
    arrays = [a if a.type == f.type else a.cast(f.type) for a, f in zip(arrays, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
