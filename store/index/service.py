"""The index of a store: its files in order, put by the dispatcher, asked by anyone.

Implements: IndexService (4.9.7 and 5.3.3; spec: store-formats, section 13)
Files are named by the local time of their creation, and that order is theirs. The directory is the list, so that a
process that deletes old files and one that asks never disagree with the one that writes the last file.

A file is sparse. Blocks for its slots come with its first key, those of entries a piece ahead of them, so that a full
disk is an error here and never a SIGBUS in a store through the mapping.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ipc.arrays import Bytes, Words
from ipc.clock import wall_ms
from ipc.descriptors import closing_fd
from store.files import file_io, mapped_files
from store.files.segment import Segment
from store.index import index_kernel, query
from store.index.index_file import ENTRY_BYTES, HEADER_BYTES, Geometry, Header, IndexFile, hash_of
from store.index.index_kernel import Key, OpenIndex, PutStop, PutWord
from store.index.query import index_files
from store.message import properties
from store.message.measure import PROPERTIES_LENGTH_BYTES
from store.message.properties import java_text
from store.message.rows_kernel import Row

ROWS_AT_ONCE = 4096  # whose keys are found before they are put: as much as the CPU's cache holds
NO_FILE: Bytes = np.zeros(0, np.uint8)
NO_WORDS: Words = np.zeros((0, len(Key)), np.int64)
NO_INDEX = OpenIndex(NO_WORDS, NO_WORDS[:, 0].copy(), NO_FILE, 0, 0, np.zeros(len(PutWord), np.int64))
ROOM_BYTES = 1 << 20  # of entries, reserved and faulted in at a time
NAME = "%Y%m%d%H%M%S"
NAME_PATTERN = re.compile(r"\d{17}")


def name_after(last: str | None, now_ms: int) -> str:
    """A new file's name: the local time, or one millisecond after the last file's, so that the order stays."""
    name = f"{time.strftime(NAME, time.localtime(now_ms // 1000))}{now_ms % 1000:03d}"
    if last is None or name > last:
        return name
    if NAME_PATTERN.fullmatch(last):
        try:
            following = datetime.strptime(last[:14], NAME) + timedelta(milliseconds=int(last[14:]) + 1)
        except ValueError:
            return f"{int(last) + 1:017d}"  # no time at all: RocketMQ takes any number
        return f"{following:{NAME}}{following.microsecond // 1000:03d}"
    return f"{int(last) + 1:017d}"


class IndexService:
    """The index in that directory. One process puts; the same class serves those who only ask."""

    def __init__(
        self,
        directory: Path,
        hash_slots: int,
        entries_max: int,
        clock_ms: Callable[[], int] = wall_ms,
        *,
        safe: bool = False,
    ) -> None:
        """`safe` is messageIndexSafe: after an abnormal end our own note of what was on disk does not count."""
        self.directory, self.geometry, self._clock_ms = directory, Geometry(hash_slots, entries_max), clock_ms
        self.safe = safe
        self._last: IndexFile | None = None  # open for putting
        self._state = np.zeros(len(PutWord), np.int64)
        self._keys = np.zeros((index_kernel.KEYS_MAX, len(Key)), np.int64)
        self._ends = np.zeros(ROWS_AT_ONCE, np.int64)

    def files(self) -> list[Path]:
        """Return the index files, the oldest first."""
        return index_files(self.directory)

    def close(self) -> None:
        """Unmap the file that is open."""
        self._last = None

    # loading

    def load(self, *, clean: bool, index_msg_timestamp_ms: int) -> list[Path]:
        """RocketMQ's rule: after an abnormal end, files with entries later than the checkpoint's time are deleted.

        Returns what was deleted. Raises IndexFileDamaged.
        """
        deleted = []
        for path in self.files():
            if clean:
                continue
            if IndexFile.open(path, self.geometry).header.end_timestamp_ms > index_msg_timestamp_ms:
                deleted.append(path)
        self.delete(deleted)
        return deleted

    def delete(self, paths: list[Path]) -> None:
        """Remove those files, durably. Who has one mapped keeps it."""
        self.close()
        for path in paths:
            file_io.unlink(path)
        if paths:
            file_io.sync_directory(self.directory)

    def cut(self, physical_offset: int, store_timestamp_of: Callable[[int], int | None]) -> None:
        """Take out the entries of records at or above that offset: what a killed dispatcher left, and comes again.

        `store_timestamp_of` tells the store time of the record at an offset, None when it is gone.
        """
        self.close()
        for left in self.directory.glob("*" + file_io.CREATING_SUFFIX):
            file_io.unlink(left)
        files = [IndexFile.open(path, self.geometry, writable=True) for path in self.files()]
        while files:
            last, before = files[-1], files[-2] if len(files) > 1 else None
            count = last.count_below(physical_offset)
            self._cut_file(last, count, before, store_timestamp_of)
            if count > 1 or before is None:
                return
            if before.count_below(physical_offset) == before.geometry.entries_max:
                return  # the file before it stays full, so that this one stays the one to put into
            self.delete([last.path])
            files.pop()

    def _cut_file(
        self, file: IndexFile, count: int, before: IndexFile | None, store_timestamp_of: Callable[[int], int | None]
    ) -> None:
        header, (slots, entries_max) = file.header, self.geometry
        counted = min(header.index_count, entries_max)
        end = counted + self._is_begun(file, counted)  # one entry may be there that does not count yet, nor its slot
        index_kernel.unchain(file.array, slots, counted, end)
        freed = index_kernel.unchain(file.array, slots, count, counted)
        self._set_header(file, self._header_of(file, count, header.hash_slot_count - freed, before, store_timestamp_of))
        index_kernel.clear(file.array, slots, count, end)

    @staticmethod
    def _is_begun(file: IndexFile, number: int) -> bool:
        """Whether anything was ever stored where the entry is: to look there else is a SIGBUS on a full tmpfs."""
        start = file.geometry.entries_at + number * ENTRY_BYTES
        end = min(start + ENTRY_BYTES, file.geometry.file_bytes)
        with closing_fd(file_io.open_file(file.path, writable=False)) as fd:
            return 0 < end - start == sum(high - low for low, high in file_io.data_ranges(fd, start, end))

    @staticmethod
    def _set_header(file: IndexFile, header: Header) -> None:
        if file.stored_header != header:
            file_io.reserve_path(file.path, 0, HEADER_BYTES)
            file.write_header(header)

    def _header_of(
        self,
        file: IndexFile,
        count: int,
        slots_used: int,
        before: IndexFile | None,
        store_timestamp_of: Callable[[int], int | None],
    ) -> Header:
        """The header of a file whose entries below `count` stay."""
        if count <= 1:
            return _beginning(before)
        header, offset = file.header, int(file.entries[count - 1]["physical_offset"])
        end_ms = header.end_timestamp_ms
        if offset != header.end_physical_offset:
            stored_ms = store_timestamp_of(offset)
            seconds = int(file.entries[count - 1]["time_diff_s"])
            end_ms = stored_ms if stored_ms is not None else header.begin_timestamp_ms + 1000 * seconds
        return header._replace(
            end_timestamp_ms=end_ms, end_physical_offset=offset, hash_slot_count=slots_used, index_count=count
        )

    # putting

    def opened(self) -> OpenIndex:
        """Return that on which `index_kernel.put_into_open_file` works."""
        file = NO_FILE if self._last is None else self._last.array
        return OpenIndex(self._keys, self._ends, file, self.geometry.slots, self.geometry.entries_max, self._state)

    def put(self, segment: Segment, rows: Words, count: int) -> None:
        """The keys of the first `count` rows that `store.message.rows_kernel.scan` made of that segment.

        Raises OSError (ENOSPC), IndexFileDamaged.
        """
        if count > len(self._ends):
            self._ends = np.zeros(count, np.int64)
        first = 0
        while first < count:
            end = self._keys_of(segment, rows, first, count)
            self._put_rows(segment.base_offset, rows, (first, end))
            first = end

    def _keys_of(self, segment: Segment, rows: Words, first: int, count: int) -> int:
        """Fill the keys with those of the rows from `first` on; the row that they go up to."""
        row, number, end = first, 0, min(count, first + ROWS_AT_ONCE)
        while True:
            row, number, why = index_kernel.keys_of_rows(
                segment.array, rows, row, end, self._keys, number, self._ends, self.geometry.slots
            )
            if why != PutStop.NOT_ASCII:
                return int(row)
            hashes = _hashes_of(segment, rows[row])
            if number + len(hashes) > index_kernel.KEYS_MAX:
                return int(row)
            for key_hash in hashes:
                index_kernel.add_key(self._keys, number, key_hash, self.geometry.slots)
                number += 1
            self._ends[row] = number
            row += 1

    def _put_rows(self, base_offset: int, rows: Words, span: tuple[int, int]) -> None:
        state = self._state
        state[PutWord.ROW], state[PutWord.KEY] = span[0], 0
        file = self._last or self._file_to_put_into()
        while True:
            why = index_kernel.put_rows(
                rows, span, self._keys, self._ends, base_offset, file.array, tuple(self.geometry), state
            )
            if why == PutStop.ALL_DONE:
                return
            if why == PutStop.FILE_FULL:
                file = self._new_file(file)
            else:
                self._make_room(file)

    def _file_to_put_into(self) -> IndexFile:
        """Return the last file, full or not; make one if there is none."""
        paths = self.files()
        self._state[PutWord.ROOM] = 0
        if not paths:
            return self._new_file(None)
        self._last = IndexFile.open(paths[-1], self.geometry, writable=True)
        self._last.require_sound_header()
        return self._last

    def _new_file(self, before: IndexFile | None) -> IndexFile:
        """getAndCreateLastIndexFile: it begins where the one before it ends."""
        name = name_after(before.path.name if before else None, self._clock_ms())
        path = self.directory / name
        file_io.make_directories(self.directory)
        creating = path.with_name(name + file_io.CREATING_SUFFIX)
        try:
            file_io.create_sparse(creating, self.geometry.file_bytes)
            file_io.reserve_path(creating, 0, HEADER_BYTES)
            file_io.rename(creating, path)  # others look into the directory, and at headers: both are there at once
        finally:
            file_io.unlink(creating)
        file = IndexFile.open(path, self.geometry, writable=True)
        self._set_header(file, _beginning(before))
        self._last = file
        self._state[PutWord.ROOM] = 0
        return file

    def _make_room(self, file: IndexFile) -> None:
        """Blocks for the slots (once) and for the next piece of entries."""
        count, geometry = file.header.index_count, self.geometry
        if not self._state[PutWord.ROOM]:
            file_io.reserve_path(file.path, 0, geometry.entries_at)
        start = geometry.entries_at + count * ENTRY_BYTES
        end = min(start + ROOM_BYTES, geometry.file_bytes)
        file_io.reserve_path(file.path, start, end - start)
        mapped_files.populate_write(file.array, start, end - start)
        self._state[PutWord.ROOM] = (end - geometry.entries_at) // ENTRY_BYTES

    # for the flusher

    def sync_file(self, path: Path) -> None:
        """Sync one file and its name to disk; what was stored through mappings, too. Raises OSError."""
        file_io.sync_path(path)
        file_io.sync_directory(self.directory)

    def sync(self) -> None:
        """Sync all files to disk. Raises OSError."""
        for path in self.files():
            self.sync_file(path)

    # asking

    def query_offset(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> list[int]:
        """The offsets of records that may carry the key, newest first; hash and time are all that is looked at."""
        files: Iterator[IndexFile] = (IndexFile.open(path, self.geometry) for path in reversed(self.files()))
        return query.query_offset(files, topic, key, max_num, begin_ms, end_ms)


def _beginning(before: IndexFile | None) -> Header:
    """The header of a file that has no entries yet."""
    header = before.header if before is not None else Header(0, 0, 0, 0, 0, 0)
    end_ms, end_offset = max(header.end_timestamp_ms, 0), max(header.end_physical_offset, 0)
    return Header(end_ms, end_ms, end_offset, end_offset, 0, 0)


def _hashes_of(segment: Segment, row: npt.NDArray[np.int64]) -> list[int]:
    """The hashes of one record's keys, whatever its characters."""
    at, end = int(row[Row.TOPIC_AT]), int(row[Row.POSITION] + row[Row.SIZE])
    topic_end = at + int(row[Row.TOPIC_BYTES])
    topic = java_text(segment.array[at:topic_end].tobytes())
    raw = segment.array[topic_end + PROPERTIES_LENGTH_BYTES : end].tobytes()
    return [hash_of(topic, key) for key in chain(*properties.keys_of(properties.parse(raw)))]
