"""Byte ranges of a window as Arrow arrays: copied once, or views into the mapping."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.lib import ArrowInvalid

from ipc.arrays import Bytes, Int32s, Words
from spark_bridge.records.window import LogWindow, Mask, Positions
from store.message.properties import java_text
from store.message.span_kernel import copy_spans, is_all_ascii

INLINE_BYTES = 12  # a view holds what is no longer than this itself


def writable(column: npt.NDArray[np.int64]) -> Words:
    """The column as compiled code takes it: in one piece, and not read-only."""
    return np.require(column, np.int64, ["C", "W"])


def copied(window: LogWindow, at: Positions, length: Positions) -> pa.BinaryArray:
    """The byte ranges, which lie in the window, in memory of their own."""
    return pa.Array.from_buffers(pa.binary(), len(at), [None, *map(pa.py_buffer, _copied(window, at, length))])


def text(window: LogWindow, at: Positions, length: Positions, is_there: Mask | None = None) -> pa.StringArray:
    """The byte ranges as text, null where they are not there. What is no UTF-8 is read as Java reads it."""
    ends, data = _copied(window, at, length)
    buffers = [None if is_there is None else bitmap_of(is_there), pa.py_buffer(ends), pa.py_buffer(data)]
    if is_all_ascii(data):
        return pa.Array.from_buffers(pa.string(), len(at), buffers)
    raw = pa.Array.from_buffers(pa.binary(), len(at), buffers)
    try:
        return raw.cast(pa.string())
    except ArrowInvalid:
        return pa.array([None if value is None else java_text(value) for value in raw.to_pylist()], pa.string())


def bitmap_of(mask: Mask) -> pa.Buffer:
    """Arrow's bitmap of what is there."""
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def _copied(window: LogWindow, at: Positions, length: Positions) -> tuple[Int32s, Bytes]:
    """Return where each range ends, behind a 0, and the bytes."""
    ends, data = np.empty(len(at) + 1, np.int32), np.empty(int(length.sum()), np.uint8)
    copy_spans(window.bytes, writable(at), writable(length), ends, data)
    return ends, data


def viewed(
    window: LogWindow,
    at: Positions,
    length: Int32s,
    others: Mapping[int, bytes | memoryview],
    without: Collection[int],
) -> pa.Array:
    """The byte ranges as binary views into the mapping, which stays as long as they do.

    `others` are those, by row, that lie elsewhere; rows of `without` are null.
    """
    views, place = _views(window, at, length), 0
    for row, body in others.items():
        short = bytes(body) if len(body) <= INLINE_BYTES else bytes(body[:4])
        views[row] = np.frombuffer(len(body).to_bytes(4, "little") + short.ljust(INLINE_BYTES, b"\0"), "<i4")
        if len(body) > INLINE_BYTES:
            views[row, 2:] = (1, place)
        place += len(body)
    buffers = [None, pa.py_buffer(views), window.buffer]
    if others:
        buffers.append(pa.py_buffer(b"".join(others.values())))
    if without:
        there = np.ones(len(at), np.bool_)
        there[list(without)] = False
        buffers[0] = bitmap_of(there)
    return pa.Array.from_buffers(pa.binary_view(), len(at), buffers)


def _views(window: LogWindow, at: Positions, length: Int32s) -> Int32s:
    views = np.zeros((len(at), 4), "<i4")
    views[:, 0] = length
    views[:, 3] = at
    short = np.flatnonzero(length <= INLINE_BYTES)
    if len(short):
        views[short, 1:] = _inline(window, at[short])
    return views


def _inline(window: LogWindow, at: Positions) -> Int32s:
    """The twelve bytes at each position: what a view holds instead of a reference (its length says how many count)."""
    whole = window.view(f"V{INLINE_BYTES}")
    if len(whole) and int(at.max()) < len(whole):
        raw = whole[at].view(np.uint8).reshape(-1, INLINE_BYTES)
    else:
        raw = window.bytes[np.minimum(at[:, None] + np.arange(INLINE_BYTES), window.length - 1)]
    return raw.view(np.int32)
