"""How many slots and entries an index file was made for: found from its bytes, because no field says so.

spec: store-formats, section 13. A file's length leaves many answers. The right one puts entries in rising order of
offsets where they lie, and has a slot for the hash of each that names this entry or a later one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ipc.descriptors import closing_fd
from store.files import file_io, mapped_files
from store.index.index_file import DEFAULT_GEOMETRY, ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES, Geometry, IndexFile

SAMPLE = 200  # entries looked at
GOOD = 0.5  # more than this share of them has to fit: some may be damaged
TRIED_ALL_BYTES = 1 << 16  # every answer is tried for files up to this length
STEP_WORDS = ENTRY_BYTES // SLOT_BYTES


def geometry_of(paths: Iterable[Path], *hints: Geometry) -> Geometry | None:
    """The geometry of these files; None when none of them holds entries that tell it."""
    for path in paths:
        try:
            size = path.stat().st_size
            if size > HEADER_BYTES and (geometry := _of_file(path, size, hints)) is not None:
                return geometry
        except FileNotFoundError:  # deleted by retention since it was listed
            continue
    return None


def _of_file(path: Path, size: int, hints: tuple[Geometry, ...]) -> Geometry | None:
    with closing_fd(file_io.open_file(path, writable=False)) as fd:
        size = min(size, os.fstat(fd).st_size)
        array = np.frombuffer(mapped_files.map_file(fd, size, writable=False), np.uint8)
        best, most = None, 0
        for geometry in _candidates(fd, array, hints):
            fitting, used = _fitting_entries(path, array, geometry)
            if fitting > most and fitting > GOOD * used:
                best, most = geometry, fitting
            if fitting == used >= min(SAMPLE, _count(array) - 1) > 0:
                break
        return best


def _candidates(fd: int, array: npt.NDArray[np.uint8], hints: tuple[Geometry, ...]) -> Iterator[Geometry]:
    size = len(array)
    yield from (geometry for geometry in (*hints, DEFAULT_GEOMETRY) if geometry.file_bytes == size)
    words = (size - HEADER_BYTES) // SLOT_BYTES
    for slots in _where_entry_one_may_be(fd, array):
        if 0 < slots <= words and (words - slots) % STEP_WORDS == 0:
            yield Geometry(slots, (words - slots) // STEP_WORDS)
    if size <= TRIED_ALL_BYTES:
        choices = sorted(range(1, words - 2 * STEP_WORDS), key=lambda slots: (words - slots) % STEP_WORDS != 0)
        yield from (Geometry(slots, (words - slots) // STEP_WORDS) for slots in choices)  # whole entries first


def _where_entry_one_may_be(fd: int, array: npt.NDArray[np.uint8]) -> Iterator[int]:
    """Slots that would put entry 1 where the header's first offset stands, with no chain.

    Only in a store's first file has it no time: in a later one RocketMQ counts that from the end of the file before.
    """
    offset = array[16:24].tobytes()
    for low, high in file_io.data_ranges(fd, 0, len(array)):
        low += -low % SLOT_BYTES
        words = array[low : high - (high - low) % SLOT_BYTES].view(np.int32)
        upper, lower = np.frombuffer(offset, np.int32)
        if len(words) < STEP_WORDS:
            continue
        hits = (words[1:-3] == upper) & (words[2:-2] == lower) & (words[4:] == 0)
        if not (upper or lower):
            hits &= words[3:-1] == 0
        for index in np.flatnonzero(hits & (words[:-4] != 0)).tolist():
            yield (low + index * SLOT_BYTES - ENTRY_BYTES - HEADER_BYTES) // SLOT_BYTES


def _count(array: npt.NDArray[np.uint8]) -> int:
    return IndexFile(Path(), Geometry(0, 0), array).header.index_count


def _fitting_entries(path: Path, array: npt.NDArray[np.uint8], geometry: Geometry) -> tuple[int, int]:
    """Return how many of the first entries make sense, and up to which one there are any."""
    file = IndexFile(path, geometry, array)
    entries = file.entries[1 : SAMPLE + 1]
    hashes, offsets = entries["key_hash"].astype(np.int64), entries["physical_offset"].astype(np.int64)
    used = np.flatnonzero((hashes != 0) | (offsets != 0))
    numbers, slots = np.arange(1, len(entries) + 1), np.maximum(hashes, 0) % geometry.slots
    newest, previous = file.slots[slots].astype(np.int64), entries["previous"].astype(np.int64)
    fits = (hashes > 0) & (entries["time_diff_s"] >= 0) & (newest >= numbers) & (newest < geometry.entries_max)
    before = np.clip(previous, 1, numbers) - 1
    fits &= (previous == 0) | ((previous > 0) & (previous < numbers) & (slots[before] == slots))
    fits[1:] &= offsets[1:] >= offsets[:-1]
    return int(fits[used].sum()), int(used[-1]) + 1 if len(used) else 0
