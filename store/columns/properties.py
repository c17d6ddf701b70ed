"""Property strings as an Arrow column of maps (spec: store-formats, section 3)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyarrow.lib import ArrowInvalid

from store.columns.spans import INT, copied, numbers, text, writable
from store.columns.window import LogWindow, Positions
from store.message.properties import parse
from store.message.property_kernel import PAIR_BYTES_MIN, TABLE_WORDS, Pair, find_pairs

MAP_TYPE = pa.map_(pa.string(), pa.string())


def properties_map(window: LogWindow, at: Positions, length: Positions) -> pa.MapArray:
    """Return all pairs of the property strings that lie there, as map<string,string>."""
    pairs = np.empty((len(Pair), int(length.sum()) // PAIR_BYTES_MIN + len(at)), np.int64)
    ends, table = np.empty(len(at) + 1, np.int32), np.zeros(TABLE_WORDS, np.int64)
    count = find_pairs(window.bytes, writable(at), writable(length), pairs, ends, table)
    try:
        names = copied(window, pairs[Pair.NAME_AT, :count], pairs[Pair.NAME_BYTES, :count]).cast(pa.string())
    except ArrowInvalid:  # names that Java reads as equal are to be one
        return _parsed(window, at, length)
    values = text(window, pairs[Pair.VALUE_AT, :count], pairs[Pair.VALUE_BYTES, :count])
    return pa.MapArray.from_arrays(numbers(ends, INT), names, values, type=MAP_TYPE)


def _parsed(window: LogWindow, at: Positions, length: Positions) -> pa.MapArray:
    spans = zip(at.tolist(), length.tolist(), strict=True)
    return pa.array([list(parse(window.bytes.data[one : one + size]).items()) for one, size in spans], MAP_TYPE)
