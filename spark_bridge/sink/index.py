"""Which rows are in the log already: unique keys asked of the index, a whole batch of rows at once.

The index is a hash table of chains; all keys of a batch walk their chains together, one array operation a step. What a
chain names may be another key's record, so each record found is asked for its own key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spark_bridge.records.reader import open_window
from spark_bridge.split.splits import LogExtent
from store.columns.records import Records
from store.errors import SegmentRemoved
from store.index.geometry import geometry_of
from store.index.index_file import Geometry, IndexFile
from store.index.query import index_files
from store.message.properties import UNIQ_KEY, java_hash
from store.message.record import FIXED_BYTES

CHAIN_STEPS_MAX = 10_000  # chains this long are a broken file's
INT32_MIN = -(1 << 31)

Int64s = npt.NDArray[np.int64]


class WrittenKeys:
    """The unique keys of a log below `log.max_physical_offset`, as its index names them."""

    def __init__(self, index: Path, geometry: Geometry, log: LogExtent, since_ms: int = 0) -> None:
        """Index files whose last entry is older than `since_ms` are not asked."""
        self._log = log
        paths = index_files(index)
        known = geometry_of(reversed(paths), geometry) or geometry
        self._files = [file for file in _opened(paths, known) if file.header.end_timestamp_ms >= since_ms]

    def counts(self, topics: Sequence[str], keys: Sequence[str]) -> Counter[str]:
        """Count the records below the end that have each of the keys. Raises CorruptRecord if an entry names none."""
        hashes = key_hashes(topics, keys)
        candidates = [_candidates(file, hashes) for file in self._files]
        offsets = np.unique(np.concatenate([np.empty(0, np.int64), *candidates]))
        log = self._log
        offsets = offsets[(offsets >= log.min_physical_offset) & (offsets < log.max_physical_offset)]
        wanted = set(keys)
        return Counter(key for key in self._keys_at(offsets) if key in wanted)

    def _keys_at(self, offsets: Int64s) -> Iterator[str | None]:
        """The unique keys of the records that begin there."""
        bases = offsets - offsets % self._log.segment_bytes
        for base in np.unique(bases).tolist():
            try:
                window = open_window(self._log, base)
            except SegmentRemoved:
                continue  # retention took it, and its rows
            starts = offsets[bases == base] - base
            beyond = starts[starts > window.length - FIXED_BYTES]
            if len(beyond):
                raise window.corrupt(int(beyond[0]), "an entry of the index names it, and no record fits there")
            records = Records(window, starts)
            yield from records.property_value(UNIQ_KEY).to_pylist()


def _opened(paths: Sequence[Path], geometry: Geometry) -> Iterator[IndexFile]:
    for path in paths:
        try:
            yield IndexFile.open(path, geometry)
        except FileNotFoundError:
            continue  # retention took it


def key_hashes(topics: Sequence[str], keys: Sequence[str]) -> Int64s:
    """`store.index.index_file.hash_of` for many keys of one length."""
    if not len(keys):
        return np.empty(0, np.int64)
    letters = np.frombuffer("".join(keys).encode("ascii"), np.uint8).reshape(len(keys), -1).astype(np.uint32)
    width = letters.shape[1]
    powers = np.array([pow(31, width - 1 - at, 1 << 32) for at in range(width)], np.uint32)
    before = {topic: java_hash(f"{topic}#") * pow(31, width, 1 << 32) % (1 << 32) for topic in set(topics)}
    starts = np.array([before[topic] for topic in topics], np.uint32)
    signed = ((letters * powers).sum(axis=1, dtype=np.uint32) + starts).view(np.int32).astype(np.int64)
    return np.where(signed == INT32_MIN, 0, np.abs(signed))


def _candidates(file: IndexFile, hashes: Int64s) -> Int64s:
    """The physical offsets of all entries with one of the hashes."""
    count = min(file.header.index_count, file.geometry.entries_max)
    offsets: list[Int64s] = []
    numbers = file.slots[hashes % file.geometry.slots].astype(np.int64)
    alive = (numbers > 0) & (numbers <= count)
    for _step in range(CHAIN_STEPS_MAX):
        hashes, numbers = hashes[alive], numbers[alive]
        if not len(numbers):
            break
        entries = file.entries[np.minimum(numbers, file.geometry.entries_max - 1)]
        offsets.append(entries["physical_offset"][entries["key_hash"] == hashes].astype(np.int64))
        previous = entries["previous"].astype(np.int64)
        alive = (previous > 0) & (previous < numbers)  # a sound chain leads to older entries only
        numbers = previous
    return np.concatenate([np.empty(0, np.int64), *offsets])
