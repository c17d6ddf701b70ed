"""Property strings as Arrow columns: one value by name, or all of them as a map.

Follows RocketMQ's parser (spec: store-formats, section 3): `name 0x01 value 0x02 ...` with or without the last 0x02; a
pair without separator, without a name or without a value does not count, and of two with one name the later counts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

NAME_VALUE_SEPARATOR, PAIR_SEPARATOR = "\x01", "\x02"
MAP_TYPE = pa.map_(pa.string(), pa.string())
NAMES_IN_A_WORD = 62  # as many different names as one int64 has bits to tell them apart


def property_value(properties: pa.StringArray, name: str) -> pa.StringArray:
    """The value of one property, null where it is missing."""
    value = f"{name}{NAME_VALUE_SEPARATOR}(?P<value>[^{PAIR_SEPARATOR}]+)"
    values = pc.struct_field(pc.extract_regex(properties, f"(?:^|{PAIR_SEPARATOR}){value}"), 0)
    several = pc.greater(pc.count_substring(properties, f"{name}{NAME_VALUE_SEPARATOR}"), 1)
    if not pc.any(several).as_py():
        return values
    # Where the name comes up again the last one counts: a greedy start finds it, at four times the cost.
    last = pc.extract_regex(properties.filter(several), f"(?s)^(?:.*{PAIR_SEPARATOR})?{value}")
    return pc.replace_with_mask(values, several, pc.struct_field(last, 0))


def properties_map(properties: pa.StringArray) -> pa.MapArray:
    """Return all properties of each record as map<string,string>."""
    pairs = pc.split_pattern(properties, PAIR_SEPARATOR)
    flat = pairs.flatten()
    separator = pc.find_substring(flat, NAME_VALUE_SEPARATOR).to_numpy()
    whole = (separator >= 1) & (pc.binary_length(flat).to_numpy() - separator >= 2)
    ends = _ends_of_kept(whole, pairs.offsets.to_numpy())
    parts = pc.split_pattern(flat.filter(pa.array(whole)), NAME_VALUE_SEPARATOR, max_splits=1).flatten()
    names = parts.take(pa.array(np.arange(0, len(parts), 2)))
    values = parts.take(pa.array(np.arange(1, len(parts), 2)))
    codes = names.dictionary_encode().indices.to_numpy().astype(np.int64)
    if not _each_name_once(codes, ends):
        last = pa.array(_last_of_each_name(codes, ends))
        names, values, ends = names.filter(last), values.filter(last), _ends_of_kept(last.to_numpy(False), ends)
    return pa.MapArray.from_arrays(pa.array(ends.astype(np.int32)), names, values, type=MAP_TYPE)


def _ends_of_kept(kept: npt.NDArray[np.bool_], ends: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Row boundaries after everything that is not kept went."""
    count_before = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(kept, out=count_before[1:])
    return np.take(count_before, ends)


def _each_name_once(codes: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> bool:
    """Return whether no row has a name twice: then the sum of its names' bits is their union."""
    if not len(codes):
        return True
    if codes.max() >= NAMES_IN_A_WORD:
        return False
    bits = np.int64(1) << codes
    first = ends[:-1][ends[1:] > ends[:-1]]
    return bool((np.add.reduceat(bits, first) == np.bitwise_or.reduceat(bits, first)).all())


def _last_of_each_name(codes: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return True for each pair that no later pair of its row overrides."""
    row = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    key = (row * (codes.max() + 1) + codes)[::-1]
    kept = np.zeros(len(codes), np.bool_)
    kept[len(codes) - 1 - np.unique(key, return_index=True)[1]] = True
    return kept
