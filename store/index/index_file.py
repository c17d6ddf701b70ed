"""An index file: which messages carry a key, as a hash table of chains; read here, written by `index_kernel`.

Implements: IndexFile, IndexHeader (spec: store-formats, section 13)
A header, `slots` words that name the newest entry of their chain, then entries; entry 0 is never used. An entry names
the one before it in its chain. Only a hash and a time are kept: what is found may be another key's message, and the
caller compares the record's own keys. Files are sparse and have their full length from the beginning.

Any byte may be wrong: a chain that leads outside of the file ends, one that leads back is cut where it does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ipc.arrays import Bytes
from ipc.descriptors import closing_fd
from store.errors import IndexFileDamaged
from store.files import file_io, mapped_files
from store.message.properties import java_hash

HEADER_DTYPE = np.dtype(
    [("begin_timestamp_ms", ">i8"), ("end_timestamp_ms", ">i8"), ("begin_physical_offset", ">i8"),
     ("end_physical_offset", ">i8"), ("hash_slot_count", ">i4"), ("index_count", ">i4")]
)  # fmt: skip
ENTRY_DTYPE = np.dtype([("key_hash", ">i4"), ("physical_offset", ">i8"), ("time_diff_s", ">i4"), ("previous", ">i4")])
HEADER_BYTES, SLOT_BYTES, ENTRY_BYTES = HEADER_DTYPE.itemsize, 4, ENTRY_DTYPE.itemsize
DEFAULT_SLOTS, DEFAULT_ENTRIES_MAX = 5_000_000, 20_000_000
INT_MAX = 2**31 - 1


class Geometry(NamedTuple):
    """The sizes on which a file's places depend: maxHashSlotNum and maxIndexNum."""

    slots: int
    entries_max: int

    @property
    def entries_at(self) -> int:
        """Return where entry 0 begins."""
        return HEADER_BYTES + SLOT_BYTES * self.slots

    @property
    def file_bytes(self) -> int:
        """The length of every file."""
        return self.entries_at + ENTRY_BYTES * self.entries_max


DEFAULT_GEOMETRY = Geometry(DEFAULT_SLOTS, DEFAULT_ENTRIES_MAX)


class Header(NamedTuple):
    """The header's fields; `index_count` is the number of the next entry."""

    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int


def positive_hash(key_hash: int) -> int:
    """indexKeyHashMethod: Java's Math.abs, which has no answer for the smallest number."""
    return 0 if key_hash == -INT_MAX - 1 else abs(key_hash)


def hash_of(topic: str, key: str) -> int:
    """Return what stands for that topic's key in the index."""
    return positive_hash(java_hash(f"{topic}#{key}"))


def _int32(value: int) -> int:
    """Wrap a number as Java's int arithmetic does."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _int64(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


class IndexFile:
    """One file, mapped. `array` is its bytes; what is written there in private stays there."""

    def __init__(self, path: Path, geometry: Geometry, array: Bytes) -> None:
        self.path, self.geometry, self.array = path, geometry, array
        self.slots = array[HEADER_BYTES : geometry.entries_at].view(">i4")
        self.entries = array[geometry.entries_at : geometry.file_bytes].view(ENTRY_DTYPE)
        self._header = array[:HEADER_BYTES].view(HEADER_DTYPE)

    @classmethod
    def open(cls, path: Path, geometry: Geometry, *, writable: bool = False) -> IndexFile:
        """Map an existing file. Raises IndexFileDamaged when it is not as long as that geometry says."""
        with closing_fd(file_io.open_file(path, writable)) as fd:
            size = os.fstat(fd).st_size
            if size != geometry.file_bytes:
                reason = f"{size} bytes long, but {geometry.slots} slots and {geometry.entries_max} entries take"
                raise IndexFileDamaged(str(path), 0, f"{reason} {geometry.file_bytes}")
            return cls(path, geometry, np.frombuffer(mapped_files.map_file(fd, size, writable), np.uint8))

    @classmethod
    def private(cls, path: Path, geometry: Geometry) -> IndexFile:
        """Map a file like RocketMQ, whatever its length: zeros behind a short one's end. Nothing reaches the disk."""
        with closing_fd(file_io.open_file(path, writable=False)) as fd:
            actual_bytes = os.fstat(fd).st_size
            if actual_bytes >= geometry.file_bytes:
                mapping = mapped_files.map_private(fd, geometry.file_bytes)
                return cls(path, geometry, np.frombuffer(mapping, np.uint8))
            file = cls.fresh(path, geometry)
            for start, end in file_io.data_ranges(fd, 0, actual_bytes):
                file.array[start:end] = np.frombuffer(os.pread(fd, end - start, start), np.uint8)
            return file

    @classmethod
    def fresh(cls, path: Path, geometry: Geometry) -> IndexFile:
        """An empty file in memory only."""
        return cls(path, geometry, np.zeros(geometry.file_bytes, np.uint8))

    @property
    def header(self) -> Header:
        """The header now; a count of 0 and less means 1, as in a fresh file."""
        fields = self.stored_header
        return fields if fields.index_count > 0 else fields._replace(index_count=1)

    @property
    def stored_header(self) -> Header:
        """The header as it is on disk."""
        return Header(*self._header[0].item())

    def write_header(self, header: Header) -> None:
        """Set all of it; only where nobody else reads or writes the file."""
        self._header[0] = tuple(header)

    @property
    def is_full(self) -> bool:
        """Return whether no entry fits, like IndexFile.isWriteFull."""
        return self.header.index_count >= self.geometry.entries_max

    def require_sound_header(self) -> Header:
        """The header. Raises IndexFileDamaged when it contradicts itself or the file's first and last entry."""
        header = self.header
        reason = self._wrong_in(header)
        if reason:
            raise IndexFileDamaged(str(self.path), 0, reason)
        return header

    def _wrong_in(self, header: Header) -> str:
        count = header.index_count
        if count > self.geometry.entries_max:
            return f"{count} entries, the file has room for {self.geometry.entries_max}"
        if not 0 <= header.hash_slot_count < count:
            return f"{header.hash_slot_count} slots in use by {count - 1} entries"
        if header.begin_physical_offset > header.end_physical_offset or header.begin_physical_offset < 0:
            return f"from offset {header.begin_physical_offset} to {header.end_physical_offset}"
        if count > 1:
            first, last = (int(self.entries[number]["physical_offset"]) for number in (1, count - 1))
            if (first, last) != (header.begin_physical_offset, header.end_physical_offset):
                return f"its entries are at offsets {first} to {last}, its header says another range"
        return ""

    def count_below(self, physical_offset: int) -> int:
        """The number of the first entry of a record at or above `physical_offset`; offsets rise with the number."""
        low, high = 1, min(self.header.index_count, self.geometry.entries_max)
        while low < high:
            middle = (low + high) // 2
            if self.entries[middle]["physical_offset"] < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    # asking

    def is_time_matched(self, begin_ms: int, end_ms: int) -> bool:
        """Whether the file may hold entries between those times, both included."""
        header = self.header
        first, last = header.begin_timestamp_ms, header.end_timestamp_ms
        return (begin_ms < first and end_ms > last) or first <= begin_ms <= last or first <= end_ms <= last

    def select(self, key_hash: int, max_num: int, begin_ms: int, end_ms: int, offsets: list[int]) -> None:
        """selectPhyOffset: add the offsets of that hash and time to `offsets`, newest first, up to `max_num` in all."""
        first_ms, count = self.header.begin_timestamp_ms, self.header.index_count
        if count <= 1:
            return  # its slots may have no blocks
        number = int(self.slots[key_hash % self.geometry.slots])
        if not 0 < number <= count:
            return
        seen: dict[int, int] = {}  # once a chain does not descend: what was found when it came to an entry
        while len(offsets) < max_num:
            entry = self._entry(number)
            if entry is None or entry[2] < 0:
                return
            entry_hash, physical_offset, time_diff_s, previous = entry
            stored_ms = _int64(first_ms + time_diff_s * 1000)
            if entry_hash == key_hash and begin_ms <= stored_ms <= end_ms:
                offsets.append(physical_offset)
            if not 0 < previous <= count or previous == number or stored_ms < begin_ms:
                return
            if previous > number or seen:
                if previous in seen:  # RocketMQ goes round until it has enough, or for ever
                    again = offsets[seen[previous] :]
                    while again and len(offsets) < max_num:
                        offsets.extend(again[: max_num - len(offsets)])
                    return
                seen[previous] = len(offsets)
            number = previous

    def _entry(self, number: int) -> tuple[int, int, int, int] | None:
        """The entry at the place that Java works out for the number; None when that is outside of the file."""
        at = _int32(self.geometry.entries_at + number * ENTRY_BYTES)
        if at < 0 or at + ENTRY_BYTES > len(self.array):
            return None
        entry: tuple[int, int, int, int] = self.array[at : at + ENTRY_BYTES].view(ENTRY_DTYPE)[0].item()
        return entry

    # putting: plain and slow, for files that nobody else has; the dispatcher has `store.index.index_kernel`

    def put(self, key_hash: int, physical_offset: int, store_timestamp_ms: int) -> bool:
        """putKey; False when the file is full."""
        header = self.header
        count = header.index_count
        if count >= self.geometry.entries_max:
            return False
        slot = key_hash % self.geometry.slots
        previous = int(self.slots[slot])
        if not 0 < previous <= count:
            previous = 0
        seconds = _int64(store_timestamp_ms - header.begin_timestamp_ms) // 1000
        if header.begin_timestamp_ms <= 0:
            seconds = 0
        self.entries[count] = (key_hash, physical_offset, max(0, min(seconds, INT_MAX)), previous)
        self.slots[slot] = count
        first_ms, first_offset = header.begin_timestamp_ms, header.begin_physical_offset
        if count <= 1:
            first_ms, first_offset = store_timestamp_ms, physical_offset
        self.write_header(
            Header(
                first_ms,
                store_timestamp_ms,
                first_offset,
                physical_offset,
                _int32(header.hash_slot_count + (previous == 0)),
                count + 1,
            )
        )
        return True
