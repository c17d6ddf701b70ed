"""Reads units of consume queues in place while their dispatcher writes behind them; so many files are mapped at most.

Implements: ConsumeQueue.getIndexBuffer, iterateFrom, correctMinOffset; BatchConsumeQueue.getBatchMsgIndexBuffer
"""

from __future__ import annotations

import os
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

import numpy as np

from ipc.arrays import Bytes, Words
from store.compat import QueueRules
from store.files import file_io, mapped_files
from store.files.segment import file_name
from store.files.segment_files import named_files
from store.message.unit import LAST_ADDRESS, Unit
from store.queues.batch_consume_queue import UNIT_BYTES
from store.queues.consume_queue import ENTRY_BYTES
from store.queues.extension import ADDRESS_ZERO, QueueExt
from store.reading.units_kernel import batch_unit_of, decode_units, first_living

MAPS_MAX = 4096
NO_FILE = -1
NO_BYTES: Bytes = np.empty(0, np.uint8)


class FileMaps:
    """Whole files, mapped for reading; those used last stay."""

    def __init__(self, maps_max: int = MAPS_MAX) -> None:
        self._maps: OrderedDict[str, tuple[Bytes, int]] = OrderedDict()
        self._maps_max = maps_max

    def get(self, path: str) -> Bytes | None:
        """Return the mapped bytes of a file; None for a missing or empty file."""
        kept = self._maps.get(path)
        if kept is not None:
            self._maps.move_to_end(path)
            return kept[0]
        try:
            fd = file_io.open_file(Path(path), writable=False)
        except FileNotFoundError:
            return None
        try:
            status = os.fstat(fd)
            if not status.st_size:
                return None
            array = np.frombuffer(mapped_files.map_file(fd, status.st_size, writable=False), np.uint8)
        finally:
            os.close(fd)
        self._maps[path] = array, status.st_ino
        if len(self._maps) > self._maps_max:
            self._maps.popitem(last=False)
        return array

    def look_again(self, path: str) -> None:
        """Forget a file that is another one by now."""
        kept = self._maps.get(path)
        if kept is not None:
            try:
                is_same = os.stat(path).st_ino == kept[1]
            except FileNotFoundError:
                is_same = False
            if not is_same:
                del self._maps[path]


class QueueReader:
    """One queue. `ext_file_bytes`: of its extension, 0 where it has none."""

    def __init__(
        self,
        maps: FileMaps,
        directory: Path,
        file_bytes: int,
        *,
        unit_bytes: int = ENTRY_BYTES,
        ext_directory: Path | None = None,
        ext_file_bytes: int = 0,
    ) -> None:
        self._maps, self._directory, self._file_bytes, self.unit_bytes = maps, directory, file_bytes, unit_bytes
        self._at = os.fspath(directory)
        self._ext = QueueExt(ext_directory, ext_file_bytes) if ext_directory is not None and ext_file_bytes else None

    @property
    def units_a_file(self) -> int:
        """Return how many units a file has room for."""
        return self._file_bytes // self.unit_bytes

    @property
    def is_plain(self) -> bool:
        """Whether its files say all of its units, one message each."""
        return self.unit_bytes == ENTRY_BYTES and self._ext is None

    def file_of(self, queue_offset: int) -> tuple[int, Bytes]:
        """The file of a plain queue with that unit: its first one's queue offset, its bytes, none where it is not."""
        base = queue_offset * ENTRY_BYTES // self._file_bytes * self._file_bytes
        array = self._maps.get(self._path(base))
        return base // ENTRY_BYTES, array[: self._file_bytes] if array is not None else NO_BYTES

    def read(self, queue_offset: int, end: int, most: int, rows: Words) -> int:
        """Units from the one that has message `queue_offset`, of one file, `most` at most; how many, or NO_FILE.

        `end` is the queue's, `rows` has room for `most` of them.
        """
        if self.unit_bytes != ENTRY_BYTES:
            return self._read_batches(queue_offset, end, most, rows)
        at = queue_offset * ENTRY_BYTES
        position = at % self._file_bytes
        path = self._path(at - position)
        count = min(end - queue_offset, most, (self._file_bytes - position) // ENTRY_BYTES)
        for is_again in (False, True):
            array = self._maps.get(path)
            if array is None or len(array) < position + count * ENTRY_BYTES:
                return NO_FILE
            decode_units(array, position, count, ENTRY_BYTES, queue_offset, rows)
            if rows[0, Unit.SIZE] > 0 or is_again:
                break
            self._maps.look_again(path)
        if self._ext is not None:
            self._resolve(rows[:count])
        return count

    def min_offset(self, min_physical_offset: int, end: int, rules: QueueRules) -> int:
        """The first queue offset whose message the log still has."""
        files = named_files(self._directory)
        is_plain = self.unit_bytes == ENTRY_BYTES
        for base, size in files:
            array = self._maps.get(self._path(base))
            if array is None or len(array) < size:
                continue
            units = min(size // self.unit_bytes, end - base // ENTRY_BYTES) if is_plain else self._written(base)
            first = int(first_living(array, units, self.unit_bytes, min_physical_offset))
            one = np.zeros((1, len(Unit)), np.int64)
            if first < units:
                decode_units(array, first * self.unit_bytes, 1, self.unit_bytes, 0, one)
                if one[0, Unit.SIZE] > 0:
                    return base // ENTRY_BYTES + first if is_plain else int(one[0, Unit.QUEUE_OFFSET])
        if rules.minimum_at_end or not is_plain:
            return end
        return files[0][0] // ENTRY_BYTES if files else 0

    def _path(self, base: int) -> str:
        return f"{self._at}/{file_name(base)}"

    def _written(self, base: int) -> int:
        """Return how many units of a file have blocks: on a full disk what lies behind may not even be looked at."""
        with suppress(FileNotFoundError):
            return mapped_files.first_hole_of(Path(self._path(base))) // self.unit_bytes
        return 0

    def _read_batches(self, queue_offset: int, end: int, most: int, rows: Words) -> int:
        for base, size in reversed(named_files(self._directory)):
            array = self._maps.get(self._path(base))
            if array is None or len(array) < size:
                continue
            units = self._written(base)
            first = int(batch_unit_of(array, units, UNIT_BYTES, queue_offset))
            if first < 0:
                continue
            count = min(units - first, most)
            decode_units(array, first * UNIT_BYTES, count, UNIT_BYTES, 0, rows)
            sizes, offsets = rows[:count, Unit.SIZE], rows[:count, Unit.QUEUE_OFFSET]
            unused = np.flatnonzero((sizes <= 0) | (offsets >= end))
            return int(unused[0]) if len(unused) else count
        return NO_FILE

    def _resolve(self, rows: Words) -> None:
        """The tags codes of units whose entries name a place in the extension."""
        assert self._ext is not None
        for index in np.flatnonzero(rows[:, Unit.TAGS_CODE] <= LAST_ADDRESS).tolist():
            unit = self._ext.read(int(rows[index, Unit.TAGS_CODE]) - ADDRESS_ZERO)
            if unit is not None:
                rows[index, Unit.TAGS_CODE] = unit.tags_code
