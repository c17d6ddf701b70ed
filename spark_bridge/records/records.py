"""The fields of some records of a mapped segment: where each lies, gathered when first asked for, all records at once.

Fixed fields are gathered through overlapping big-endian views. Variable ones become Arrow views that point into the
mapping, and are copied once, by Arrow's cast to the type that Spark takes. The rare shapes (IPv6 hosts, magic v2) are
offsets that shift, not branches.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.lib import ArrowInvalid

from spark_bridge.records.scan import LogWindow, Positions
from store.message.properties import java_text
from store.message.record import (
    BORN_V6,
    FIXED_BYTES,
    HOST_MASK,
    MAGIC_AT,
    MAGIC_V2,
    MAX_TOPIC_BYTES,
    STORE_V6,
    SYS_FLAG_AT,
    V6_EXTRA_BYTES,
    body_length_at,
    store_host_at,
)

# With two IPv4 hosts; an IPv6 host moves what lies behind it.
STORE_HOST_AT, BODY_LENGTH_AT = store_host_at(0), body_length_at(0)
BODY_BEYOND, TOPIC_BEYOND = "its body reaches beyond its end", "its topic reaches beyond its end"
NOT_ITS_SIZE = "its lengths do not add up to its size"
INLINE_BYTES = 12  # a view holds what is no longer than this itself

Int32s = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]


class Records:
    """Some records of one window.

    `bodies` holds, by row, those bodies that are not the stored bytes (inflated ones), `errors` why a row has none.
    """

    def __init__(self, window: LogWindow, starts: Positions) -> None:
        self.window = window
        self.starts = starts
        self.bodies: dict[int, bytes | memoryview] = {}
        self.errors: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.starts)

    def place(self, row: int) -> str:
        """Where a record lies, for an error."""
        offset = int(self.window.offsets(self.starts[row : row + 1])[0])
        return f"{self.window.path}: record at offset {offset}"

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

    @cached_property
    def _has_v6(self) -> bool:
        return bool(np.bitwise_and(self.sys_flag, HOST_MASK).any())

    def _shift(self, bit: int) -> Positions | int:
        if not self._has_v6:
            return 0
        return np.where(self.sys_flag & bit, np.int64(V6_EXTRA_BYTES), np.int64(0))

    @cached_property
    def _room(self) -> npt.NDArray[np.int64]:
        """Bytes that each record has for body, topic and properties."""
        return self.int32_at(0).astype(np.int64) - FIXED_BYTES - self.hosts_shift

    @cached_property
    def body_at(self) -> Positions:
        """Where each body begins."""
        return self.starts + (BODY_LENGTH_AT + 4) + self.hosts_shift

    @cached_property
    def body_length(self) -> Int32s:
        """Bytes of each body as stored, checked against the record's size."""
        self._check(self._room >= 0, BODY_BEYOND)
        length = self.window.int32(self.body_at - 4)
        self._check((length >= 0) & (length <= self._room), BODY_BEYOND)
        return length

    @cached_property
    def topic_span(self) -> tuple[Positions, Int32s]:
        """Where each topic begins, and its length: one byte, in magic v2 two."""
        at: Positions = self.body_at + self.body_length
        length = self.window.bytes[at].astype(np.int32)
        v2 = self._is_v2
        if v2.any():
            length[v2] = self.window.view(">u2")[at[v2]]
        return at + 1 + v2, length

    @property
    def likely_topic_at(self) -> Positions:
        """Where each topic begins if the record is sound, with nothing checked; may lie outside the window."""
        at: Positions = self.body_at + self.window.int32(np.minimum(self.body_at, self.window.length) - 4) + 1
        at += self.window.bytes[self.starts + MAGIC_AT + 3] == MAGIC_V2 & 0xFF
        return at

    @cached_property
    def _is_v2(self) -> Mask:
        found: Mask = self.window.view(">u4")[self.starts + MAGIC_AT] == MAGIC_V2
        return found

    @cached_property
    def properties_span(self) -> tuple[Positions, Int32s]:
        """Where each property string begins, and its length. All lengths must add up to the record's size."""
        topic_at, topic_length = self.topic_span
        length_at = topic_at + topic_length
        ends = self.starts + self.int32_at(0)
        self._check((length_at + 2 <= ends) & (self._is_v2 | (topic_length <= MAX_TOPIC_BYTES)), TOPIC_BEYOND)
        length = self.window.view(">i2")[length_at].astype(np.int32)
        at = length_at + 2
        self._check((length >= 0) & (at + length == ends), NOT_ITS_SIZE)
        return at, length

    def _check(self, good: Mask, reason: str) -> None:
        if not good.all():
            raise self.window.corrupt(int(self.starts[np.flatnonzero(~good)[0]]), reason)

    @cached_property
    def topic(self) -> pa.StringArray:
        """Topics, once the whole record was found consistent."""
        assert self.properties_span is not None  # checks the lengths, the topic's among them
        return _text(self.window, *self.topic_span)

    @cached_property
    def properties(self) -> pa.StringArray:
        """Property strings, unparsed."""
        return _text(self.window, *self.properties_span)

    @cached_property
    def body(self) -> pa.BinaryArray:
        """Bodies, null where `errors` tells why."""
        if not self.bodies and not self.errors:
            return copied(self.window, self.body_at, self.body_length)
        return _replaced(self)

    @cached_property
    def store_host_at(self) -> Positions:
        """Where each store host begins."""
        return self.starts + STORE_HOST_AT + self.born_shift


def copied(window: LogWindow, at: Positions, length: Int32s) -> pa.BinaryArray:
    """The byte ranges as one Arrow array: views into the mapping, copied by the cast."""
    views = pa.py_buffer(_views(window, at, length))
    return pa.Array.from_buffers(pa.binary_view(), len(at), [None, views, window.buffer]).cast(pa.binary())


def _views(window: LogWindow, at: Positions, length: Int32s) -> npt.NDArray[np.int32]:
    views = np.zeros((len(at), 4), "<i4")
    views[:, 0] = length
    views[:, 3] = at
    short = np.flatnonzero(length <= INLINE_BYTES)
    if len(short):
        views[short, 1:] = _inline(window, at[short])
    return views


def _replaced(records: Records) -> pa.BinaryArray:
    """Stored bodies, but those of `records.bodies` in their places, from a second buffer."""
    views = _views(records.window, records.body_at, records.body_length)
    at = 0
    for row, body in records.bodies.items():
        short = bytes(body) if len(body) <= INLINE_BYTES else bytes(body[:4])
        views[row] = np.frombuffer(len(body).to_bytes(4, "little") + short.ljust(INLINE_BYTES, b"\0"), "<i4")
        if len(body) > INLINE_BYTES:
            views[row, 2:] = (1, at)
        at += len(body)
    there = np.ones(len(records), np.bool_)
    there[list(records.errors)] = False
    bitmap = pa.py_buffer(np.packbits(there, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(views), records.window.buffer, pa.py_buffer(b"".join(records.bodies.values()))]
    return pa.Array.from_buffers(pa.binary_view(), len(records), buffers).cast(pa.binary())


def _text(window: LogWindow, at: Positions, length: Int32s) -> pa.StringArray:
    """The byte ranges as text. What is no UTF-8 is read as Java reads it."""
    raw = copied(window, at, length)
    try:
        return raw.cast(pa.string())
    except ArrowInvalid:
        return pa.array([java_text(value) for value in raw.to_pylist()], pa.string())


def _inline(window: LogWindow, at: Positions) -> npt.NDArray[np.int32]:
    """The twelve bytes at each position: what a view holds instead of a reference (its length says how many count)."""
    whole = window.view(f"V{INLINE_BYTES}")
    if len(whole) and int(at.max()) < len(whole):
        raw = whole[at].view(np.uint8).reshape(-1, INLINE_BYTES)
    else:
        raw = window.bytes[np.minimum(at[:, None] + np.arange(INLINE_BYTES), window.length - 1)]
    return raw.view(np.int32)


def faults(records: Records) -> dict[int, str]:
    """Why a row is no record: its lengths do not add up. Empty when all do; reads nothing outside the window."""
    window, found = records.window, dict[int, str]()
    sizes, last = records.int32_at(0), window.length
    ends = records.starts + sizes
    good = records._room >= 0
    body_length = window.int32(np.minimum(records.body_at, last) - 4)
    good &= (body_length >= 0) & (body_length <= records._room)
    _note(found, good, BODY_BEYOND)
    at = np.where(good, records.body_at + body_length, 0)
    wide = np.minimum(at, last - 2)
    topic_length = np.where(records._is_v2, window.view(">u2")[wide], window.bytes[at]).astype(np.int64)
    length_at = at + 1 + records._is_v2 + topic_length
    good &= (length_at + 2 <= ends) & (records._is_v2 | (topic_length <= MAX_TOPIC_BYTES))
    _note(found, good, TOPIC_BEYOND)
    length = window.view(">i2")[np.where(good, length_at, 0)]
    good &= (length >= 0) & (length_at + 2 + length == ends)
    _note(found, good, NOT_ITS_SIZE)
    return found


def _note(found: dict[int, str], good: Mask, reason: str) -> None:
    for row in np.flatnonzero(~good).tolist():
        found.setdefault(row, reason)
