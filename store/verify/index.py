"""Checks the index files of a store: header, chains, and every entry against its record's keys, place and time.

Records that should have entries and have none are found, too, between a file's first and last entry. Memory: four bytes
a slot of one file. Keys that are not ASCII are looked at in Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from store.errors import IndexFileDamaged
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles
from store.index.geometry import geometry_of
from store.index.index_file import Geometry, Header, IndexFile, hash_of
from store.index.query import index_files
from store.message.properties import TAG_TYPE, TAGS, keys_of
from store.message.record import decode
from store.verify import check_kernel
from store.verify import index_kernel as kernel
from store.verify.check_words import CheckStop, Part
from store.verify.finding import Finding
from store.verify.index_kernel import CheckedFile, CheckedLog, IndexStop, IndexWord, Work

REBUILD_INDEX = "stop the broker, then `slipstream log rebuild index STORE`: the index is built again from the log"
FIRST_SECONDS, PAUSE_SECONDS = 2.0, 0.02  # for the first entries of all, which are being put


class IndexCheck:
    """The check of all files, oldest first. `live`: a broker puts keys meanwhile."""

    def __init__(
        self,
        directory: Path,
        files: SegmentFiles,
        bases: list[int],
        end_offset: int,
        *,
        live: bool,
        aborted: bool,
        on_progress: Callable[[], None],
    ) -> None:
        self._files, self._bases, self._end = files, bases, end_offset
        self._live, self._aborted, self._on_progress = live, aborted, on_progress
        self._paths = index_files(directory)
        self._segment: Segment | None = None
        self._array, self._base = np.zeros(0, np.uint8), 0  # the segment's, or zeros where one is missing
        self._state = np.zeros(len(IndexWord), np.int64)
        self._work = Work(np.zeros(len(Part), np.int64), np.zeros(kernel.KEYS_MAX, np.int64), self._state)
        self._state[IndexWord.CURSOR] = self._state[IndexWord.LAST_OFFSET] = -1
        self._earlier_ms = 0  # when the file before ended
        self.entries = 0

    def findings(self) -> Iterator[Finding]:
        """Yield the findings of all index files."""
        geometry = geometry_of(reversed(self._paths))
        try:
            for path in self._paths:
                if geometry is None and self._says_something(path):
                    geometry = self._told_meanwhile()
                    if geometry is None:
                        what = "it does not contain its numbers of slots and entries"
                        yield Finding("INDEX_FILE", str(path), what, REBUILD_INDEX)
                if geometry is not None:
                    yield from self._file(path, geometry)
        finally:
            if self._segment is not None:
                self._segment.close()

    @staticmethod
    def _says_something(path: Path) -> bool:
        return bool(path.stat().st_size and np.memmap(path, np.uint8, "r").any())

    def _told_meanwhile(self) -> Geometry | None:
        """Return what the first entries tell that a broker was just putting; None where nobody puts any."""
        geometry, until = None, time.monotonic() + (FIRST_SECONDS if self._live else 0.0)
        while geometry is None and time.monotonic() < until:
            geometry = geometry_of(reversed(self._paths))
            if geometry is None:
                time.sleep(PAUSE_SECONDS)
        return geometry

    def _file(self, path: Path, geometry: Geometry) -> Iterator[Finding]:
        try:
            file = IndexFile.open(path, geometry)
        except (IndexFileDamaged, FileNotFoundError) as error:
            yield Finding("INDEX_FILE", str(path), str(error), REBUILD_INDEX)
            self._state[IndexWord.CURSOR] = self._state[IndexWord.LAST_OFFSET] = -1
            return
        header = file.header
        count = header.index_count
        if not 0 < count <= geometry.entries_max:
            what = f"its header counts {count} entries, it has room for {geometry.entries_max}"
            yield Finding("INDEX_HEADER", str(path), what, REBUILD_INDEX)
            self._state[IndexWord.CURSOR] = self._state[IndexWord.LAST_OFFSET] = -1
            return
        if self._live:  # what was put since the check began is not looked at
            count = file.count_below(self._end)
        heads = np.zeros(geometry.slots, np.int32)
        self._state[IndexWord.NUMBER] = 1
        self._state[IndexWord.CHAIN :] = 0
        self._entries(file, header._replace(index_count=count), heads)
        self.entries += count - 1
        yield from self._entry_findings(file)
        live = self._live or (self._aborted and path == self._paths[-1])
        wrong, first, used = kernel.wrong_slots(file.array, geometry.slots, count, heads, live)
        if wrong:
            what = f"{wrong} hash slots do not name the newest entry of their chain, first slot {first}"
            yield Finding("INDEX_SLOT", str(path), what, REBUILD_INDEX)
        if not self._live:
            for what in self._wrong_in_header(file, header, used):
                yield Finding("INDEX_HEADER", str(path), what, REBUILD_INDEX)
        self._earlier_ms = header.end_timestamp_ms

    def _entries(self, file: IndexFile, header: Header, heads: np.ndarray[tuple[int], np.dtype[np.int32]]) -> None:
        slots, count, begin_ms = file.geometry.slots, header.index_count, header.begin_timestamp_ms
        index = CheckedFile(file.array, slots, count, begin_ms, heads)
        while True:
            limit = min(len(self._array), self._end - self._base)
            log = CheckedLog(self._array, self._base, limit, self._bases[0], self._end)
            why = kernel.check_entries(index, log, self._work)
            self._on_progress()
            if why == IndexStop.ALL_DONE:
                return
            if why == IndexStop.ELSEWHERE:
                self._go_to(int(file.entries[int(self._state[IndexWord.NUMBER])]["physical_offset"]))
            else:
                self._text(file, int(self._state[IndexWord.NUMBER]) - 1)

    def _go_to(self, offset: int) -> None:
        """Open the segment that holds the offset; one that is missing, or out of order, is one without records."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None
        follows = self._state[IndexWord.CURSOR] >= 0 and self._base + len(self._array) == self._files.base_of(offset)
        self._base = self._files.base_of(offset)
        self._state[IndexWord.CURSOR] = self._base if follows else -1
        if self._base in self._bases:
            self._segment = self._files.open(self._base)
            self._array = self._segment.array
        else:
            self._array = np.zeros(self._files.segment_bytes, np.uint8)

    def _text(self, file: IndexFile, number: int) -> None:
        """The entry of a record whose topic or keys are not ASCII."""
        assert self._segment is not None
        entry, state = file.entries[number], self._state
        position = int(entry["physical_offset"]) - self._segment.base_offset
        message = decode(self._segment.view, position, check_body_crc=False)
        hashes = [hash_of(message.topic, key) for key in chain(*keys_of(message.properties))]
        state[IndexWord.LAST_KEYS] = len(hashes)
        tag, code = message.properties.get(TAGS), int(entry["key_hash"])
        is_tag = bool(tag) and code not in hashes and code == hash_of(message.topic, f"{TAG_TYPE}#{tag}")
        state[IndexWord.LAST_SEEN] += not is_tag
        kernel.note(state, int(IndexWord.KEY), int(code not in hashes and not is_tag), number)

    def _entry_findings(self, file: IndexFile) -> Iterator[Finding]:
        kinds = (
            (IndexWord.CHAIN, "INDEX_ENTRY", "entries do not name the one before them in their chain, first entry"),
            (IndexWord.NO_RECORD, "INDEX_ENTRY", "entries point to no sound record, first entry"),
            (IndexWord.KEY, "INDEX_ENTRY", "entries are of a key that their record does not have, first entry"),
            (IndexWord.TIME, "INDEX_ENTRY", "entries have another time than their record, first entry"),
            (IndexWord.LEFT_OUT, "NOT_IN_INDEX", "keys of records have no entry, first of the record at offset"),
        )
        for what, code, text in kinds:
            count, first = int(self._state[what]), int(self._state[what + 1])
            if count:
                yield Finding(code, str(file.path), f"{count} {text} {first}", REBUILD_INDEX)

    def _wrong_in_header(self, file: IndexFile, header: Header, used: int) -> Iterator[str]:
        if not used <= header.hash_slot_count <= max(used, header.index_count - 1):  # before 4.6 one for each entry
            yield f"its header says that {header.hash_slot_count} slots are in use, {used} are"
        count = header.index_count
        if count == 1:
            return
        for number, offset, time_ms, which in (
            (1, header.begin_physical_offset, header.begin_timestamp_ms, "first"),
            (count - 1, header.end_physical_offset, header.end_timestamp_ms, "last"),
        ):
            named = int(file.entries[number]["physical_offset"])
            if named != offset:
                yield f"its header says that the {which} entry is of offset {offset}, it is of {named}"
                continue
            stored = self._stored_at(offset)
            if stored is not None and stored != time_ms:
                yield f"its header says that the {which} entry is of time {time_ms}, its record of {stored}"
        seconds, begin_ms = int(file.entries[1]["time_diff_s"]), header.begin_timestamp_ms
        if seconds not in (0, max(0, (begin_ms - self._earlier_ms) // 1000)):
            yield f"its first entry is {seconds} s after the file's beginning"

    def _stored_at(self, offset: int) -> int | None:
        """The store time of the record there, None when it is gone or not sound."""
        base = self._files.base_of(offset)
        if base not in self._bases or offset >= self._end:
            return None
        with self._files.open(base) as segment:
            parts = self._work.parts
            kind = check_kernel.shape(segment.array, offset - base, segment.size_bytes, base, parts)
            return int(parts[Part.STORED]) if kind == CheckStop.SOUND else None
