"""The fields of some records of a mapped segment: where each lies, gathered when first asked for, all records at once.

Heads are copied out of the mapping once; fixed fields are columns of them, also of records that are chosen or joined
later. Variable fields become Arrow views that point into the mapping, and are copied once, by Arrow's cast to the type
that Spark takes. The rare shapes (IPv6 hosts, magic v2) are offsets that shift, not branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.lib import ArrowInvalid

from spark_bridge.records.scan import LogWindow, Positions
from store.message.measure_columns import HEAD, Heads, Int32s, Mask, Measures, Part
from store.message.properties import java_text
from store.message.record import store_host_at

STORE_HOST_AT = store_host_at(0)  # with two IPv4 hosts; an IPv6 host moves what lies behind it
BODY_BEYOND, TOPIC_BEYOND = "its body reaches beyond its end", "its topic reaches beyond its end"
NOT_ITS_SIZE = "its lengths do not add up to its size"
MATRIX_BYTES = 128  # up to here it pays to know that all are of one length
INLINE_BYTES = 12  # a view holds what is no longer than this itself

FIELD_AT = {int(place[1]): name for name, place in (HEAD.fields or {}).items()}

Span = tuple[Positions, Int32s]  # where a part of each record begins, and its length
Rows = npt.NDArray[np.intp] | Mask | slice


class Records:
    """Records of one window.

    `bodies` holds, by row, those bodies that are not the stored bytes (inflated ones), `errors` why a row has none.
    """

    def __init__(self, window: LogWindow, starts: Positions, heads: Heads | None = None) -> None:
        self.window = window
        self.starts = starts
        self.measures = Measures(window, starts, heads)
        self.bodies: dict[int, bytes | memoryview] = {}
        self.errors: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def joined(cls, parts: Sequence[Records]) -> Records:
        """The records of several, all of one window and as they are stored."""
        if len(parts) == 1:
            return parts[0]
        heads = [part.measures.heads for part in parts]
        return cls(parts[0].window, np.concatenate([part.starts for part in parts]), np.concatenate(heads))

    def chosen(self, rows: Rows) -> Records:
        """Return some of the records, as they are stored."""
        heads = self.measures.known_heads
        return Records(self.window, self.starts[rows], None if heads is None else heads[rows])

    def meeting(self, mask: Mask) -> Records:
        """Return the records for which the mask is true."""
        return self if mask.all() else self.chosen(mask)

    def place(self, row: int) -> str:
        """Return a record's path and offset, for an error."""
        offset = int(self.window.offsets(self.starts[row : row + 1])[0])
        return f"{self.window.path}: record at offset {offset}"

    def int32_at(self, at: int, shift: Positions | int = 0) -> Int32s:
        """A fixed field of four bytes, which lies there or, behind IPv6 hosts, further on."""
        if isinstance(shift, int) and shift == 0 and at in FIELD_AT:
            return self.measures.heads[FIELD_AT[at]].astype(np.int32)
        return self.window.int32(self.starts + at + shift)

    def int64_at(self, at: int, shift: Positions | int = 0) -> npt.NDArray[np.int64]:
        """A fixed field of eight bytes, as `int32_at`."""
        if isinstance(shift, int) and shift == 0 and at in FIELD_AT:
            return self.measures.heads[FIELD_AT[at]].astype(np.int64)
        return self.window.int64(self.starts + at + shift)

    @property
    def sizes(self) -> Int32s:
        """Return what each record says of its size."""
        return self.measures.sizes

    @property
    def sys_flag(self) -> Int32s:
        """Says among other things which hosts are IPv6."""
        return self.measures.sys_flag

    @property
    def born_shift(self) -> Positions | int:
        """Return by how much an IPv6 born host moves the fields behind it."""
        return self.measures.born_shift

    @property
    def hosts_shift(self) -> Positions | int:
        """Return by how much both hosts move the fields behind them."""
        return self.measures.hosts_shift

    @property
    def body_at(self) -> Positions:
        """Return the position of each body."""
        return self.measures.body_at

    @cached_property
    def body_length(self) -> Int32s:
        """Return the bytes of each body as stored, checked against the record's size."""
        return self._checked(self.measures.body, BODY_BEYOND)[1]

    @cached_property
    def topic_span(self) -> Span:
        """Return where each topic begins, and its length, checked against the record's size."""
        assert self.body_length is not None  # checks it
        return self._checked(self.measures.topic, TOPIC_BEYOND)

    @property
    def likely_topic_at(self) -> Positions:
        """Return where each topic begins if the record is sound, with nothing checked; may lie outside the window."""
        return self.measures.likely_topic_at

    @cached_property
    def properties_span(self) -> Span:
        """Return where each property string begins, and its length. All lengths must add up to the record's size."""
        assert self.topic_span is not None  # checks it
        return self._checked(self.measures.properties, NOT_ITS_SIZE)

    def _checked(self, part: Part, reason: str) -> Span:
        if not part.good.all():
            raise self.window.corrupt(int(self.starts[np.flatnonzero(~part.good)[0]]), reason)
        return part.at, part.length

    @cached_property
    def topic(self) -> pa.StringArray:
        """Topics, once the whole record was found consistent."""
        assert self.properties_span is not None  # checks the lengths, the topic's among them
        return _text(self.window, *self.topic_span)

    @cached_property
    def properties(self) -> pa.StringArray:
        """Return the property strings without parsing them."""
        return _text(self.window, *self.properties_span)

    @cached_property
    def body(self) -> pa.BinaryArray:
        """The bodies, null where `errors` tells why; copied."""
        return self.body_view.cast(pa.binary())

    @property
    def body_view(self) -> pa.Array:
        """The same as binary views into the mapping, which stays as long as they do."""
        if not self.bodies and not self.errors:
            return viewed(self.window, self.body_at, self.body_length)
        return _replaced(self)

    @cached_property
    def store_host_at(self) -> Positions:
        """Return the position of each store host."""
        return self.starts + STORE_HOST_AT + self.born_shift


def viewed(window: LogWindow, at: Positions, length: Int32s) -> pa.Array:
    """The byte ranges as one array of binary views into the mapping."""
    views = pa.py_buffer(_views(window, at, length))
    return pa.Array.from_buffers(pa.binary_view(), len(at), [None, views, window.buffer])


def _views(window: LogWindow, at: Positions, length: Int32s) -> npt.NDArray[np.int32]:
    views = np.zeros((len(at), 4), "<i4")
    views[:, 0] = length
    views[:, 3] = at
    short = np.flatnonzero(length <= INLINE_BYTES)
    if len(short):
        views[short, 1:] = _inline(window, at[short])
    return views


def _replaced(records: Records) -> pa.Array:
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
    return pa.Array.from_buffers(pa.binary_view(), len(records), buffers)


def _text(window: LogWindow, at: Positions, length: Int32s) -> pa.StringArray:
    """The byte ranges as text. What is no UTF-8 is read as Java reads it."""
    raw = _side_by_side(window, at, length)
    if raw is None:
        raw = viewed(window, at, length).cast(pa.binary())
    try:
        return raw.cast(pa.string())
    except ArrowInvalid:
        return pa.array([java_text(value) for value in raw.to_pylist()], pa.string())


def _side_by_side(window: LogWindow, at: Positions, length: Int32s) -> pa.BinaryArray | None:
    """The byte ranges if all are of one small length: the rows of a matrix are what Arrow keeps of them."""
    width = int(length[0]) if len(length) else 0
    if not 0 < width <= MATRIX_BYTES or (length != width).any():
        return None
    matrix = window.view(f"V{width}")[at]
    ends = np.arange(0, matrix.nbytes + 1, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(at), [None, pa.py_buffer(ends), pa.py_buffer(matrix.view(np.uint8))])


def _inline(window: LogWindow, at: Positions) -> npt.NDArray[np.int32]:
    """The twelve bytes at each position: what a view holds instead of a reference (its length says how many count)."""
    whole = window.view(f"V{INLINE_BYTES}")
    if len(whole) and int(at.max()) < len(whole):
        raw = whole[at].view(np.uint8).reshape(-1, INLINE_BYTES)
    else:
        raw = window.bytes[np.minimum(at[:, None] + np.arange(INLINE_BYTES), window.length - 1)]
    return raw.view(np.int32)


def faults(records: Records) -> dict[int, str]:
    """Return why rows are not records: their lengths do not add up. Reads nothing outside the window."""
    measures, reasons = records.measures, dict[int, str]()
    _note(reasons, measures.body.good, BODY_BEYOND)
    _note(reasons, measures.topic.good, TOPIC_BEYOND)
    _note(reasons, measures.properties.good, NOT_ITS_SIZE)
    return reasons


def _note(reasons: dict[int, str], good: Mask, reason: str) -> None:
    for row in np.flatnonzero(~good).tolist():
        reasons.setdefault(row, reason)
