"""The fields of some records of a mapped segment, as arrays: heads as the walk has written them, parts when asked for.

Variable fields are copied once, into the buffers that Arrow's arrays are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ipc.arrays import Int32s
from store.columns.properties import properties_map
from store.columns.spans import copied, encoded, text, viewed, writable
from store.columns.window import LogWindow, Mask, Positions
from store.message.measure_kernel import Fault
from store.message.property_kernel import Value, find_values
from store.message.record import (
    BORN_TIMESTAMP_AT,
    BORN_V6,
    HOST_MASK,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_V6,
    SYS_FLAG_AT,
    V6_EXTRA_BYTES,
    store_host_at,
)
from store.message.walk_kernel import Head, Part, fill_heads, fill_parts

STORE_HOST_AT = store_host_at(0)  # with two IPv4 hosts; an IPv6 host moves what lies behind it
REASONS = {
    Fault.BODY: "its body reaches beyond its end",
    Fault.TOPIC: "its topic reaches beyond its end",
    Fault.SIZE: "its lengths do not add up to its size",
}

FIELD_AT = {
    0: Head.SIZE,
    SYS_FLAG_AT: Head.SYS_FLAG,
    QUEUE_ID_AT: Head.QUEUE_ID,
    QUEUE_OFFSET_AT: Head.QUEUE_OFFSET,
    BORN_TIMESTAMP_AT: Head.BORN_MS,
}

Span = tuple[Positions, Positions]  # where a part of each record begins, and its length
Rows = npt.NDArray[np.intp] | Mask | slice


class Records:
    """Records of one window, each with as many bytes there as its size says.

    `bodies` holds, by row, those bodies that are not the stored bytes (inflated ones), `errors` why a row has none.
    """

    def __init__(
        self, window: LogWindow, starts: Positions, heads: Positions | None = None, parts: Positions | None = None
    ) -> None:
        """`heads` and `parts` are the columns of `Head` and `Part`, if they were written already."""
        self.window = window
        self.starts = starts
        self._heads, self._parts = heads, parts
        self._values: dict[str, Positions] = {}
        self.bodies: dict[int, bytes | memoryview] = {}
        self.errors: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def joined(cls, parts: Sequence[Records]) -> Records:
        """The records of several, all of one window and as they are stored."""
        if len(parts) == 1:
            return parts[0]
        heads = np.concatenate([part.heads for part in parts], axis=1)
        known = [part._parts for part in parts if part._parts is not None]
        whole: Positions | None = np.concatenate(known, axis=1) if len(known) == len(parts) else None
        return cls(parts[0].window, heads[Head.START], heads, whole)

    def chosen(self, rows: Rows) -> Records:
        """Return some of the records, as they are stored."""
        if self._heads is None:
            return Records(self.window, self.starts[rows])
        heads, parts = _taken(self._heads, rows), None if self._parts is None else _taken(self._parts, rows)
        return Records(self.window, heads[Head.START], heads, parts)

    def meeting(self, mask: Mask) -> Records:
        """Return the records for which the mask is true."""
        return self if mask.all() else self.chosen(mask)

    @property
    def heads(self) -> Positions:
        """The columns of `Head`, int64, shape (columns, records)."""
        if self._heads is None:
            starts = writable(self.starts)
            heads = np.empty((len(Head), len(starts)), np.int64)
            if (row := fill_heads(self.window.bytes, starts, heads)) >= 0:
                raise IndexError(f"no record fits at position {starts[row]} of {self.window.path}")
            self._heads = heads
        return self._heads

    @property
    def parts(self) -> Positions:
        """The columns of `Part`, int64, shape (columns, records)."""
        if self._parts is None:
            starts, sizes = writable(self.head(Head.START)), writable(self.head(Head.SIZE))
            self._parts = np.empty((len(Part), len(starts)), np.int64)
            fill_parts(self.window.bytes, starts, sizes, self._parts)
        return self._parts

    def place(self, row: int) -> str:
        """Return a record's path and offset, for an error."""
        offset = int(self.window.offsets(self.starts[row : row + 1])[0])
        return f"{self.window.path}: record at offset {offset}"

    def head(self, which: Head) -> Positions:
        """One column of the heads."""
        column: Positions = self.heads[which]
        return column

    def int32_at(self, at: int, shift: Positions | int = 0) -> Int32s:
        """A fixed field of four bytes, which lies there or, behind IPv6 hosts, further on."""
        if isinstance(shift, int) and shift == 0 and at in FIELD_AT:
            return self.head(FIELD_AT[at]).astype(np.int32)
        return self.window.int32(self.starts + at + shift)

    def int64_at(self, at: int) -> Positions:
        """A fixed field of eight bytes before the hosts."""
        if at in FIELD_AT:
            return self.head(FIELD_AT[at]).copy()  # alone, so that a column of Arrow does not keep the others
        return self.window.int64(self.starts + at)

    @property
    def sizes(self) -> Int32s:
        """Return what each record says of its size."""
        return self.head(Head.SIZE).astype(np.int32)

    @property
    def sys_flag(self) -> Int32s:
        """Says among other things which hosts are IPv6."""
        return self.head(Head.SYS_FLAG).astype(np.int32)

    @property
    def stored_ms(self) -> Positions:
        """Return when each record was stored."""
        return self.head(Head.STORED_MS)

    @property
    def hosts_shift(self) -> Positions | int:
        """Return by how much both hosts move the fields behind them. Raises CorruptRecord where they do not fit."""
        assert self.body_length is not None  # checks it
        return self._shift(BORN_V6) + self._shift(STORE_V6)

    def _shift(self, bit: int) -> Positions | int:
        """Return by how much the IPv6 host of that bit moves the fields behind it."""
        flags = self.head(Head.SYS_FLAG)
        if not (flags & HOST_MASK).any():
            return 0
        return np.where(flags & bit, np.int64(V6_EXTRA_BYTES), np.int64(0))

    @property
    def body_at(self) -> Positions:
        """Return the position of each body."""
        return self.head(Head.BODY_AT)

    @cached_property
    def body_length(self) -> Int32s:
        """Return the bytes of each body as stored, checked against the record's size."""
        lengths = self.head(Head.BODY_BYTES)
        if len(lengths) and lengths.min() < 0:
            raise self.window.corrupt(int(self.starts[np.argmin(lengths)]), REASONS[Fault.BODY])
        return lengths.astype(np.int32)

    @property
    def topic_span(self) -> Span:
        """Return where each topic begins, and its length. All lengths must add up to the record's size."""
        sound = self._sound_parts
        return sound[Part.TOPIC_AT], sound[Part.TOPIC_BYTES]

    @property
    def properties_span(self) -> Span:
        """Return where each property string begins, and its length. All lengths must add up to the record's size."""
        sound = self._sound_parts
        return sound[Part.PROPERTIES_AT], sound[Part.PROPERTIES_BYTES]

    @cached_property
    def _sound_parts(self) -> Positions:
        """The parts. Raises CorruptRecord for the first record whose lengths do not add up."""
        if reasons := faults(self):
            row = min(reasons)
            raise self.window.corrupt(int(self.starts[row]), reasons[row])
        return self.parts

    @cached_property
    def topic(self) -> pa.StringArray:
        """Return the topic of each record."""
        return text(self.window, *self.topic_span)

    @property
    def topic_dictionary(self) -> pa.DictionaryArray:
        """The same, each distinct topic once."""
        return encoded(self.window, *self.topic_span)

    @property
    def properties(self) -> pa.MapArray:
        """All properties of each record."""
        return properties_map(self.window, *self.properties_span)

    def property_value(self, name: str) -> pa.StringArray:
        """The value of one property of each record, null where it is missing."""
        return text(self.window, *self._values_of(name))

    def property_dictionary(self, name: str) -> pa.DictionaryArray:
        """The same, each distinct value once."""
        return encoded(self.window, *self._values_of(name))

    def _values_of(self, name: str) -> tuple[Positions, Positions, Mask | None]:
        """Where the values of a property lie, their lengths, and which are there; None: all."""
        values = self._values.get(name)
        if values is None:
            at, length = self.properties_span
            values = self._values[name] = np.empty((len(Value), len(self)), np.int64)
            wanted = np.frombuffer(name.encode(), np.uint8)
            find_values(self.window.bytes, writable(at), writable(length), wanted, values)
        is_there = values[Value.BYTES] > 0
        return values[Value.AT], values[Value.BYTES], None if is_there.all() else is_there

    @cached_property
    def body(self) -> pa.BinaryArray:
        """The bodies, null where `errors` tells why; copied."""
        if self.bodies or self.errors:
            return self.body_view.cast(pa.binary())
        assert self.body_length is not None  # checks it
        return copied(self.window, self.body_at, self.head(Head.BODY_BYTES))

    @property
    def body_view(self) -> pa.Array:
        """The same as binary views into the mapping, which stays as long as they do."""
        return viewed(self.window, self.body_at, self.body_length, self.bodies, self.errors)

    @cached_property
    def store_host_at(self) -> Positions:
        """Return the position of each store host. Raises CorruptRecord where it does not fit into its record."""
        assert self.body_length is not None  # checks it
        return self.starts + STORE_HOST_AT + self._shift(BORN_V6)


def _taken(columns: Positions, rows: Rows) -> Positions:
    """Return the columns of some records."""
    if isinstance(rows, slice):
        return columns[:, rows]
    return columns.take(np.flatnonzero(rows) if rows.dtype == np.bool_ else rows, axis=1)


def faults(records: Records) -> dict[int, str]:
    """Return why rows are not records: their lengths do not add up. Reads nothing outside the window."""
    codes = records.parts[Part.FAULT]
    return {row: REASONS[Fault(int(codes[row]))] for row in np.flatnonzero(codes).tolist()}
