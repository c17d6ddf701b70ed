"""Byte ranges of a window as Arrow arrays, copied once or as views into the mapping; arrays of numbers and texts.

Arrays are made of their buffers: `pa.array`, `pa.scalar` and `to_numpy` look for pandas first, which takes a fifth of a
second and 40 MB in every worker that has it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.lib import ArrowInvalid

from ipc.arrays import Bytes, Int32s, Words
from store.columns.window import LogWindow, Mask, Positions
from store.message.properties import java_text
from store.message.span_kernel import copy_spans, is_all_ascii, number_spans

DISTINCT_MAX = 1 << 10  # of the texts of a dictionary that is made without Arrow
INLINE_BYTES = 12  # a view holds what is no longer than this itself
INT, BIGINT, STRING, BINARY = pa.int32(), pa.int64(), pa.string(), pa.binary()
TIMESTAMP = pa.timestamp("us", tz="UTC")


def numbers(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """The numbers, without a copy where they are in one piece and as wide as the type."""
    column = np.ascontiguousarray(values, np.int32 if kind == INT else np.int64)
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])


def texts(values: Sequence[str]) -> pa.StringArray:
    """The texts, none of them null."""
    encoded = [value.encode() for value in values]
    return varied(STRING, np.cumsum([0, *map(len, encoded)], dtype=np.int32), b"".join(encoded))


def repeated(value: str | None, count: int) -> pa.StringArray:
    """One text, or null, as many times."""
    if value is None:
        return pa.nulls(count, STRING)
    text = value.encode()
    return varied(STRING, np.arange(count + 1, dtype=np.int32) * np.int32(len(text)), text * count)


def varied(kind: pa.DataType, ends: Int32s, data: Bytes | bytes, is_there: Mask | None = None) -> pa.Array:
    """Texts or bytes one behind the other, and where each ends, behind a 0."""
    return pa.Array.from_buffers(kind, len(ends) - 1, [_bitmap_of(is_there), pa.py_buffer(ends), pa.py_buffer(data)])


def indices_of(dictionary: pa.DictionaryArray) -> Int32s:
    """Return the numbers of a dictionary array's values; those of nulls mean nothing."""
    indices = dictionary.indices
    return np.frombuffer(indices.buffers()[1], np.int32)[indices.offset :][: len(indices)]


def writable(column: npt.NDArray[np.int64]) -> Words:
    """The column as compiled code takes it: in one piece, and not read-only."""
    return np.require(column, np.int64, ["C", "W"])


def copied(window: LogWindow, at: Positions, length: Positions) -> pa.BinaryArray:
    """The byte ranges, which lie in the window, in memory of their own."""
    return varied(pa.binary(), *_copied(window.bytes, at, length))


def text(window: LogWindow, at: Positions, length: Positions, is_there: Mask | None = None) -> pa.StringArray:
    """The byte ranges as text, null where they are not there. What is no UTF-8 is read as Java reads it."""
    ends, data = _copied(window.bytes, at, length)
    if is_all_ascii(data):
        return varied(STRING, ends, data, is_there)
    raw = varied(pa.binary(), ends, data, is_there)
    try:
        return raw.cast(STRING)
    except ArrowInvalid:
        return pa.array([None if value is None else java_text(value) for value in raw.to_pylist()], STRING)


def encoded(window: LogWindow, at: Positions, length: Positions, is_there: Mask | None = None) -> pa.DictionaryArray:
    """The same as `text`, each distinct one once."""
    starts, lengths = writable(at), writable(length if is_there is None else np.where(is_there, length, -1))
    numbers, firsts = distinct(window, starts, lengths)
    if numbers is None:
        return text(window, at, length, is_there).dictionary_encode()
    return dictionary_of(numbers, text(window, starts[firsts], lengths[firsts]), is_there)


def dictionary_of(numbers: Int32s, texts: pa.StringArray, is_there: Mask | None = None) -> pa.DictionaryArray:
    """The texts with these numbers; distinct bytes may be equal texts, which the dictionary has once."""
    if len(set(texts.to_pylist())) < len(texts):
        once = texts.dictionary_encode()
        numbers, texts = indices_of(once)[numbers], once.dictionary
    indices = pa.Array.from_buffers(INT, len(numbers), [_bitmap_of(is_there), pa.py_buffer(numbers)])
    return pa.DictionaryArray.from_arrays(indices, texts)


def spelled_out(dictionary: pa.DictionaryArray) -> pa.StringArray:
    """The texts of a dictionary made here, in which none is null."""
    _, ends, data = dictionary.dictionary.buffers()
    numbers, borders = indices_of(dictionary), np.frombuffer(ends, np.int32).astype(np.int64)
    array = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return varied(STRING, *_copied(array, borders[numbers], np.diff(borders)[numbers]))


def distinct(window: LogWindow, at: Words, length: Words) -> tuple[Int32s | None, Positions]:
    """The number of each byte range among the distinct ones, and which has it first; None for more than DISTINCT_MAX.

    A range of a negative length has number 0.
    """
    numbers, firsts = np.empty(len(at), np.int32), np.empty(DISTINCT_MAX, np.int64)
    count = number_spans(window.bytes, at, length, numbers, firsts, np.zeros(2 * DISTINCT_MAX, np.int64))
    return (None, firsts[:0]) if count < 0 else (numbers, firsts[:count])


def _bitmap_of(is_there: Mask | None) -> pa.Buffer | None:
    """Arrow's bitmap of what is there; None: all."""
    return None if is_there is None else pa.py_buffer(np.packbits(is_there, bitorder="little"))


def _copied(array: Bytes, at: Positions, length: Positions) -> tuple[Int32s, Bytes]:
    """Return where each range ends, behind a 0, and the bytes."""
    ends, data = np.empty(len(at) + 1, np.int32), np.empty(int(length.sum()), np.uint8)
    copy_spans(array, writable(at), writable(length), ends, data)
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
    is_there = np.ones(len(at), np.bool_) if without else None
    if is_there is not None:
        is_there[list(without)] = False
    elsewhere = [pa.py_buffer(b"".join(others.values()))] if others else []
    buffers = [_bitmap_of(is_there), pa.py_buffer(views), window.buffer, *elsewhere]
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
