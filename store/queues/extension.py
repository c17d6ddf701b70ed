"""A consume queue's extension: for every entry a unit with its tags code, store time, and perhaps a filter bitmap.

Implements: ConsumeQueueExt (spec: store-formats, section 11)
The entry's tags code is then the unit's address. A unit is a function of its record but for the bitmap: that says which
of the SQL92 filters known when the record was dispatched took it, and cannot be made again. So units that are there are
never written over: `put` looks for the record's own unit first (tags code and store time are equal; units stand in the
log's order), and makes new ones, without a bitmap, only behind all others. A record between two units that has none
keeps its plain tags code, as with RocketMQ when it cannot write one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ipc.arrays import Words
from store.errors import QueueFileMismatch
from store.files import file_io, mapped_files
from store.files.segment import file_name
from store.files.segment_files import named_files
from store.message.unit import LAST_ADDRESS
from store.queues.consume_queue import VALIDATED_FILES, ConsumeQueue

EXT_DTYPE = np.dtype([("size", ">i2"), ("tags_code", ">i8"), ("store_timestamp_ms", ">i8"), ("bitmap_bytes", ">i2")])
UNIT_BYTES = EXT_DTYPE.itemsize  # without a bitmap
END_BYTES = 4  # a unit goes into a file only if these still fit behind it
END_OF_FILE = b"\xff\xff"
ADDRESS_ZERO = -(1 << 63)
FILE_BYTES_KEY = "mappedFileSizeConsumeQueueExt"
SAME_TIME_MAX = 4096  # units of one store time that are looked through for a record's own
_UNIT = struct.Struct(">hqqh")


class ExtUnit(NamedTuple):
    """A unit and where it lies, in bytes from the queue's beginning."""

    position: int
    size: int
    tags_code: int
    store_timestamp_ms: int
    bitmap: bytes


def is_address(tags_code: int) -> bool:
    """Whether a queue entry's tags code is the address of a unit."""
    return tags_code <= LAST_ADDRESS


def require_length(directory: Path, file_bytes: int) -> None:
    """Raise QueueFileMismatch unless all files there have that length: what is in others would be lost."""
    for base, size in named_files(directory):
        if size != file_bytes or base % file_bytes:
            raise QueueFileMismatch(str(directory / file_name(base)), size, file_bytes, FILE_BYTES_KEY)


class QueueExt:
    """The units of one queue; `position` is where the next record's unit is, or will be."""

    def __init__(self, directory: Path, file_bytes: int) -> None:
        """Begin at the first unit. Raises QueueFileMismatch for files of another length."""
        self.directory, self._file_bytes = directory, file_bytes
        self.position = 0
        self.findings: list[str] = []
        self._at_end = False  # nothing lies behind `position`, in its file
        self._mapped: tuple[int, memoryview] | None = None
        require_length(directory, file_bytes)

    def seek(self, queue: ConsumeQueue, end: int) -> None:
        """Go behind the unit of the last entry before queue offset `end` that has one; to the first without any."""
        looked_at = VALIDATED_FILES * (queue.file_bytes // queue.dtype.itemsize)
        self._go_behind(_last_address(queue, max(0, end - looked_at), end))

    def _go_behind(self, address: int | None) -> bool:
        """Go behind the unit there, to the first unit without an address; False where no whole unit is."""
        self._at_end = False
        if address is None:
            first = named_files(self.directory)[:1]
            self.position = first[0][0] if first else 0
            return True
        unit = self.read(address)
        self.position = address + (unit.size if unit is not None else 0)
        return unit is not None

    def read(self, position: int) -> ExtUnit | None:
        """The unit at `position`; None where no whole one lies."""
        base = position - position % self._file_bytes
        view = self._map(base)
        at = position - base
        if view is None or at + UNIT_BYTES + END_BYTES > len(view):
            return None
        size, tags_code, stored_ms, bitmap_bytes = _UNIT.unpack_from(view, at)
        if size != UNIT_BYTES + max(bitmap_bytes, 0) or at + size + END_BYTES > len(view):
            return None
        return ExtUnit(position, size, tags_code, stored_ms, bytes(view[at + UNIT_BYTES : at + size]))

    def units(self, position: int = 0) -> Iterator[ExtUnit]:
        """Yield all units from `position`, where one begins, in order."""
        while True:
            unit = self.read(position)
            if unit is None:
                following = self._behind(position)
                if following is None:
                    return
                position = following
                continue
            yield unit
            position += unit.size

    def _map(self, base: int) -> memoryview | None:
        """Return the bytes of a file; None where the file does not exist."""
        if self._mapped is None or self._mapped[0] != base:
            try:
                fd = file_io.open_file(self.directory / file_name(base), writable=False)
            except FileNotFoundError:
                return None
            try:
                self._mapped = base, memoryview(mapped_files.map_file(fd, os.fstat(fd).st_size, writable=False))
            finally:
                os.close(fd)
        return self._mapped[1]

    def _behind(self, position: int) -> int | None:
        """Return where units go on when none lies at `position`: the next file that there is. None: they end here."""
        base = position - position % self._file_bytes
        view = self._map(base)
        at = position - base
        content = b"" if view is None else bytes(view[at : at + len(END_OF_FILE)])
        if content.strip(b"\0"):
            if content != END_OF_FILE:
                self.findings.append(f"{self.directory / file_name(base)}: no unit at byte {at}; the rest is not used")
            return base + self._file_bytes
        later = [other for other, _ in named_files(self.directory) if other > base]
        return later[0] if later else None

    # writing: one process, the dispatcher (or recovery before there is one)

    def cut(self, queue: ConsumeQueue, end: int) -> bool:
        """Take out all units behind that of the last entry before queue offset `end` that has one; all if none has.

        False when that entry's own unit is not there.
        """
        bases = queue.bases() if end else []
        address = _last_address(queue, bases[0] // queue.dtype.itemsize, end) if bases else None
        is_whole = self._go_behind(address)
        base = self.position - self.position % self._file_bytes
        for other, size in named_files(self.directory):
            path = self.directory / file_name(other)
            if other > base or address is None:
                file_io.unlink(path)
            elif other == base:
                mapped_files.clear(path, self.position - base, size)
        if address is None:
            self._mapped, self.position = None, 0
        return is_whole

    def put(self, tags_codes: Words, store_timestamps_ms: Words) -> Words:
        """Return what the entries of these records say instead of their tags codes: the addresses of their units."""
        codes = tags_codes.copy()
        done = 0
        while done < len(codes):
            if self._at_end:
                done += self._append(tags_codes[done:], store_timestamps_ms[done:], codes[done:])
            elif self._skip_to(int(store_timestamps_ms[done])):
                codes[done] = self._own(int(tags_codes[done]), int(store_timestamps_ms[done]))
                done += 1
        return codes

    def _skip_to(self, stored_ms: int) -> bool:
        """Pass the units of earlier records; False when that leads to the end of all."""
        while True:
            unit = self.read(self.position)
            if unit is None:
                following = self._behind(self.position)
                if following is None:
                    self._at_end = True
                    return False
                self.position = following
            elif unit.store_timestamp_ms >= stored_ms:
                return True
            else:
                self.position += unit.size

    def _own(self, tags_code: int, stored_ms: int) -> int:
        """The address of the record's unit; the plain tags code when it has none."""
        for number, unit in enumerate(self.units(self.position)):
            if unit.store_timestamp_ms != stored_ms or number == SAME_TIME_MAX:
                break
            if unit.tags_code == tags_code:
                self.position = unit.position + unit.size
                return unit.position + ADDRESS_ZERO
        return tags_code

    def _append(self, tags_codes: Words, store_timestamps_ms: Words, codes: Words) -> int:
        """New units for as many records as the file has room for; how many that are. 0: it is closed."""
        base = self.position - self.position % self._file_bytes
        at = self.position - base
        path = self.directory / file_name(base)
        count = min((self._file_bytes - at - END_BYTES) // UNIT_BYTES, len(codes))
        if count <= 0:
            self._write(path, END_OF_FILE, at)
            self.position, self._at_end = base + self._file_bytes, False
            return 0
        units = np.zeros(count, EXT_DTYPE)
        units["size"] = UNIT_BYTES
        units["tags_code"], units["store_timestamp_ms"] = tags_codes[:count], store_timestamps_ms[:count]
        self._write(path, units.tobytes(), at)
        codes[:count] = self.position + ADDRESS_ZERO + np.arange(count, dtype=np.int64) * UNIT_BYTES
        self.position += count * UNIT_BYTES
        return count

    def _write(self, path: Path, data: bytes, at: int) -> None:
        """Write all bytes, or none: a part of a unit would be taken for another record's, and stay."""
        try:
            os.close(file_io.write_into_sparse(path, data, at, self._file_bytes))
        except OSError as error:
            if error.errno in file_io.NO_ROOM and path.exists():
                mapped_files.clear(path, at, at + len(data))
            raise


def _last_address(queue: ConsumeQueue, start: int, end: int) -> int | None:
    """Return where the unit of the last entry of [start, end) that has one lies."""
    per_file = queue.file_bytes // queue.dtype.itemsize
    while end > start:
        low = max(start, end - per_file)
        tags_codes = queue.entries(low, end)["tags_code"].astype(np.int64)
        with_unit = np.flatnonzero(tags_codes <= LAST_ADDRESS)
        if len(with_unit):
            return int(tags_codes[with_unit[-1]]) - ADDRESS_ZERO
        end = low
    return None
