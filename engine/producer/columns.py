"""Columns of messages as bytes and ends: what a caller has (sequences, numpy, Arrow) for the compiled encoder.

A column is data uint8[n] and ends int64[count + 1]: value k is data[ends[k]:ends[k + 1]]. Arrow and numpy columns are
taken in place, without a copy of their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.errors import MessageIllegal
from engine.producer.argument_checks import body_bytes
from engine.rings.encode_kernel import Column
from ipc.arrays import Bytes

SEPARATORS = ("\x01", "\x02")
NOTHING = np.empty(0, np.uint8)


def column_of(values: Any, what: str) -> Column:
    """Bodies as a column: a sequence of bytes or str, a numpy array ('S', or uint8 of two dimensions: a row a body),
    an Arrow (chunked) array of binary or string. Raises MessageIllegal."""
    if isinstance(values, np.ma.MaskedArray):
        if np.ma.is_masked(values):
            raise MessageIllegal(what, f"{int(np.ma.getmaskarray(values).sum())} value(s) are masked")
        values = values.data
    if isinstance(values, np.ndarray):
        return _from_numpy(values, what)
    if hasattr(values, "combine_chunks"):
        values = values.combine_chunks()
    if hasattr(values, "buffers") and hasattr(values, "type"):
        return _from_arrow(values, what)
    if isinstance(values, (str, bytes, bytearray, memoryview)) or not isinstance(values, Sequence):
        raise MessageIllegal(
            what, f"a sequence of bytes, a numpy or an Arrow array is wanted, not {type(values).__name__}"
        )
    return column_of_parts([value if type(value) is bytes else body_bytes(value) for value in values])


def column_of_parts(parts: Sequence[bytes]) -> Column:
    """Values that are bytes already."""
    ends = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)), out=ends[1:])
    return Column(as_bytes(b"".join(parts)), ends)


def as_bytes(data: bytes | bytearray | memoryview) -> Bytes:
    """The bytes as an array, in place; read-only, because a kernel is compiled anew for writable ones."""
    array = np.frombuffer(data, np.uint8) if len(data) else NOTHING
    array.flags.writeable = False
    return array


def _from_numpy(values: Any, what: str) -> Column:
    if values.dtype.kind == "S" and values.ndim == 1:
        width, count = values.dtype.itemsize, len(values)
        lengths = np.char.str_len(values)
        flat = np.ascontiguousarray(values).view(np.uint8).reshape(count, width)
        if (lengths == width).all():
            return Column(as_bytes(flat.reshape(-1).data), np.arange(count + 1, dtype=np.int64) * width)
        return column_of_parts(values.tolist())
    if values.dtype == np.uint8 and values.ndim == 2:
        flat = np.ascontiguousarray(values)
        return Column(as_bytes(flat.reshape(-1).data), np.arange(len(values) + 1, dtype=np.int64) * values.shape[1])
    if values.dtype.kind == "O" and values.ndim == 1:
        return column_of(values.tolist(), what)
    raise MessageIllegal(
        what, f"a numpy array of {values.dtype} with {values.ndim} dimension(s) is not a column of bodies"
    )


def _from_arrow(values: Any, what: str) -> Column:
    if values.null_count:
        raise MessageIllegal(what, f"{values.null_count} value(s) are null")
    kind = str(values.type)
    widths = {"binary": np.int32, "string": np.int32, "large_binary": np.int64, "large_string": np.int64}
    if kind not in widths:
        raise MessageIllegal(what, f"an Arrow array of {kind} is not a column of bodies; cast it to binary")
    _validity, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, widths[kind])[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return Column(as_bytes(data if data is not None else b""), ends)


def check_property(name: str, value: str) -> None:
    """Raise MessageIllegal for a property that a reader could not separate again."""
    if not isinstance(name, str) or not isinstance(value, str):
        raise MessageIllegal(f"property {name!r}", "names and values are str")
    if not name or not value:
        raise MessageIllegal(f"property {name!r}", "RocketMQ drops properties without a name or without a value")
    if any(separator in text for separator in SEPARATORS for text in (name, value)):
        raise MessageIllegal(f"property {name!r}", "the characters U+0001 and U+0002 separate properties")
