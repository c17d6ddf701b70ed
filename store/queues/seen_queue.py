"""A consume queue as it was at one look: its folder is listed once, its entries are read by blocks and not mapped.

For who looks at very many queues: of maps a process may have 65,530, each holds a descriptor, and to list a folder for
each question takes longer than all the questions. What is said here is what `ConsumeQueue` says of the same files.
"""

from __future__ import annotations

import os
import struct
from typing import Self

import numpy as np

from store.files import file_io, mapped_files
from store.files.segment import file_name
from store.files.segment_files import is_offset
from store.queues.consume_queue import CQ_DTYPE, ENTRY_BYTES, PREFILL_SIZE, SMALL_FILE_BYTES, Entries, checked_files

BLOCK_ENTRIES = 204  # a page's
EVERYTHING = 1 << 62
NOTHING = 0, 0  # an entry that is not there
_ENTRY = struct.Struct(">qi8x")  # physical offset, size


def physical_offset_at(directory: str, queue_offset: int) -> int:
    """Return where one entry's record lies, like `SeenQueue.physical_offset`, for a caller with no other question.

    The entry's file is known by the names alone, so none of the files is looked at beside the one that is read.
    """
    at = queue_offset * ENTRY_BYTES
    try:
        base = max((int(name) for name in os.listdir(directory) if is_offset(name) and int(name) <= at), default=-1)
        fd = file_io.open_file(f"{directory}/{file_name(base)}", writable=False) if base >= 0 else -1
    except FileNotFoundError:
        return -1
    if fd < 0:
        return -1
    try:
        entry = os.pread(fd, ENTRY_BYTES, at - base)
    finally:
        os.close(fd)
    return int(_ENTRY.unpack(entry)[0]) if len(entry) == ENTRY_BYTES else -1


class SeenQueue:
    """One queue's files. Offsets are in entries.

    Inside of a `with` the file looked at stays open, and the block read last is kept; outside each question opens it.
    """

    __slots__ = (
        "_base", "_block", "_block_at", "_fd", "_first", "_held", "_stop", "_written", "directory", "file_bytes",
    )  # fmt: skip

    def __init__(self, directory: str) -> None:
        """List the files. Raises QueueFileMismatch when they are not of one length, or leave a gap."""
        self.directory = directory
        files = checked_files(directory, 0, ENTRY_BYTES)
        self.file_bytes = files[0][1] if files else ENTRY_BYTES
        self._first, self._stop = (files[0][0], files[-1][0] + self.file_bytes) if files else (0, 0)
        self._held = False
        self._forget()

    def _forget(self) -> None:
        self._fd, self._base, self._written = -1, -1, -1
        self._block, self._block_at = b"", 0

    def __enter__(self) -> Self:
        self._held = True
        return self

    def __exit__(self, *_exc: object) -> None:
        self._held = False
        self._let_go()

    def _let_go_unless_held(self) -> None:
        if not self._held:
            self._let_go()

    def _let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._forget()

    @property
    def bases(self) -> range:
        """Byte offsets of the files, ascending."""
        return range(self._first, self._stop, self.file_bytes)

    @property
    def min_offset(self) -> int:
        """Return the first queue offset that has a message of its own; the queue's end without one."""
        if self._first == self._stop:
            return 0
        try:
            while self._first < self._stop:
                try:
                    return self._first // ENTRY_BYTES + self._first_own()
                except FileNotFoundError:  # retention has deleted it since the folder was listed
                    self._first += self.file_bytes
            return self._stop // ENTRY_BYTES
        finally:
            self._let_go_unless_held()

    def _first_own(self) -> int:
        """The number, in the first file, of the first entry that points somewhere."""
        count = self._count(self._first)
        for number in range(count):
            if self._entry(self._first, number)[1] != PREFILL_SIZE:
                return number
        return count

    def end_below(self, physical_offset: int) -> int:
        """The first queue offset whose entry is not there or lies at or above `physical_offset` in the log."""
        try:
            for base in range(self._stop - self.file_bytes, self._first - 1, -self.file_bytes):
                try:
                    count = self._count_below(base, physical_offset)
                except FileNotFoundError:  # retention has deleted it, and those before it, since the folder was listed
                    return (base + self.file_bytes) // ENTRY_BYTES
                if count or base == self._first:
                    return base // ENTRY_BYTES + count
            return 0
        finally:
            self._let_go_unless_held()

    def physical_offset(self, queue_offset: int) -> int:
        """Return where the record of one entry lies; -1, before everything, when its file is not there (any more)."""
        base = queue_offset * ENTRY_BYTES // self.file_bytes * self.file_bytes
        if not self._first <= base < self._stop:
            return -1
        try:
            return self._entry(base, queue_offset - base // ENTRY_BYTES)[0]
        except FileNotFoundError:
            return -1
        finally:
            self._let_go_unless_held()

    def entries(self, start: int, end: int) -> Entries:
        """A copy of the entries [start, end); what is not in the files (any more) is left out."""
        parts, per_file = [], self.file_bytes // ENTRY_BYTES
        for base in self.bases:
            first = base // ENTRY_BYTES
            if start < first + per_file and first < end:
                try:
                    parts.append(self._part(base, max(start - first, 0), min(end - first, per_file)))
                except FileNotFoundError:
                    continue
                finally:
                    self._let_go_unless_held()
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        return np.frombuffer(data, CQ_DTYPE, len(data) // ENTRY_BYTES)

    def _part(self, base: int, low: int, high: int) -> bytes:
        """The bytes of a file's entries [low, high)."""
        self._open(base)
        at, length = (low - self._block_at) * ENTRY_BYTES, (high - low) * ENTRY_BYTES
        if at >= 0 and at + length <= len(self._block):
            return self._block[at : at + length]
        return os.pread(self._fd, length, low * ENTRY_BYTES)

    def mean_size(self, start: int, end: int) -> int:
        """The mean length of the records of entries [start, end) of one file, of those that are there."""
        base = start * ENTRY_BYTES // self.file_bytes * self.file_bytes
        first = base // ENTRY_BYTES
        try:
            data = self._part(base, start - first, end - first)
        except FileNotFoundError:
            return 0
        finally:
            self._let_go_unless_held()
        sizes = [size for _, size in _ENTRY.iter_unpack(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES])]
        return sum(sizes) // len(sizes) if sizes else 0

    def last_entry(self, end: int) -> np.void | None:
        """The entry before queue offset `end`, unless it points nowhere."""
        last = self.entries(end - 1, end)
        return last[0] if len(last) and last[0]["size"] != PREFILL_SIZE else None

    def last_record_end(self) -> int:
        """The end in the log of the record that the last entry points to; 0 where it points nowhere."""
        end = self.end_below(EVERYTHING)
        last = self.last_entry(end)
        return 0 if last is None else int(last["physical_offset"]) + int(last["size"])

    # one file, which is open

    def _open(self, base: int) -> None:
        if base != self._base:
            self._let_go()
            self._fd = file_io.open_file(f"{self.directory}/{file_name(base)}", writable=False)
            self._base = base

    def _count(self, base: int) -> int:
        """Return how many entries of a file are to be looked at: those behind the first hole were never written."""
        if self.file_bytes <= SMALL_FILE_BYTES:
            return self.file_bytes // ENTRY_BYTES
        if base != self._base:
            self._open(base)
        if self._written < 0:
            self._written = mapped_files.first_hole(self._fd) // ENTRY_BYTES
        return self._written

    def _entry(self, base: int, number: int) -> tuple[int, int]:
        """Physical offset and size of a file's entry."""
        self._load(base, number)
        at = (number - self._block_at) * ENTRY_BYTES
        if at + ENTRY_BYTES > len(self._block):
            return NOTHING  # the file is shorter than it was
        physical_offset, size = _ENTRY.unpack_from(self._block, at)
        return physical_offset, size

    def _load(self, base: int, number: int) -> None:
        """See that the block of that entry is at hand."""
        if base != self._base:
            self._open(base)
        if not 0 <= (number - self._block_at) * ENTRY_BYTES < len(self._block):
            self._block_at = number - number % BLOCK_ENTRIES
            self._block = os.pread(self._fd, BLOCK_ENTRIES * ENTRY_BYTES, self._block_at * ENTRY_BYTES)

    def _count_below(self, base: int, physical_offset: int) -> int:
        """Return how many entries from the file's beginning are there and lie below `physical_offset`, by bisection.

        First of the blocks, of which the last is looked at first because an end lies there nearly always, then in one
        of them.
        """
        count = self._count(base)
        low, high = 0, -(-count // BLOCK_ENTRIES) - 1  # the last block whose first entry is below, if not the first
        middle = high
        while low < high:
            offset, size = self._entry(base, middle * BLOCK_ENTRIES)
            if size > 0 and offset < physical_offset:
                low = middle
            else:
                high = middle - 1
            middle = (low + high + 1) // 2
        first = low * BLOCK_ENTRIES
        return first + self._count_in_block(base, first, min(count - first, BLOCK_ENTRIES), physical_offset)

    def _count_in_block(self, base: int, first: int, count: int, physical_offset: int) -> int:
        if count <= 0:
            return 0
        self._load(base, first)
        block, low, high = self._block, 0, min(count, len(self._block) // ENTRY_BYTES)
        while low < high:
            middle = (low + high) // 2
            offset, size = _ENTRY.unpack_from(block, middle * ENTRY_BYTES)
            if size > 0 and offset < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low
