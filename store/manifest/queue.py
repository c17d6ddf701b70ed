"""One consume queue as a RocketMQ broker has it in memory after loading a store; nothing is written.

Implements: ConsumeQueue.recover, putMessagePositionInfo, truncateDirtyLogicFiles, correctMinOffset (4.9.7 and 5.3.3)
What those do to files on disk happens here to a list of arrays, line by line, oddities included: a message without an
own entry ("pre-filled") counts, an empty last file that is truncated keeps one bogus entry, and 4.9 leaves the minimum
at 0 where 5.x sets it to the end.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from store.compat import QueueRules
from store.files.segment_files import named_files
from store.queues.consume_queue import CQ_DTYPE, ENTRY_BYTES, PREFILL_SIZE, ConsumeQueue, Entries

VALIDATED_FILES = 3


class _File:
    """A file of the queue: `wrote` entries of it are in use. Mapped only while it is looked at: a store has many."""

    def __init__(self, base: int, wrote: int, source: ConsumeQueue | None, appendable: Entries | None = None) -> None:
        self.base, self.wrote = base, wrote
        self._source, self._appendable = source, appendable

    def entries(self) -> Entries:
        """Return every entry that the file has room for."""
        if self._appendable is not None:
            return self._appendable
        assert self._source is not None
        return self._source.map_file(self.base)

    def appendable(self) -> Entries:
        """Return the entries as a private copy, which is used from now on."""
        if self._appendable is None:
            self._appendable = self.entries().copy()
        return self._appendable


class LoadedQueue:
    """A queue; `min_logic_offset` is in bytes, as RocketMQ's minLogicOffset."""

    def __init__(self, topic: str, queue_id: int, file_bytes: int) -> None:
        self.topic, self.queue_id, self.file_bytes = topic, queue_id, file_bytes
        self.max_physical_offset = -1
        self.min_logic_offset = 0
        self._files: list[_File] = []
        self._first_created: _File | None = None  # the file that a put created in an empty queue

    @classmethod
    def recovered(cls, source: ConsumeQueue, topic: str, queue_id: int) -> LoadedQueue:
        """Load and recover a queue, like ConsumeQueue.load and recover."""
        queue = cls(topic, queue_id, source.file_bytes)
        for base, size in named_files(source.directory):
            if size:
                queue._files.append(_File(base, size // ENTRY_BYTES, source))
        queue._recover()
        return queue

    def _recover(self) -> None:
        if not self._files:
            return
        end = 0
        for file in self._files[-VALIDATED_FILES:]:
            entries = file.entries()
            used = _used(entries)
            if used:
                self.max_physical_offset = _end_of(entries, used - 1)
            end = file.base + used * ENTRY_BYTES
            if used < len(entries):
                break
        kept = []
        for file in self._files:
            if file.base + self.file_bytes > end:
                if end < file.base:
                    continue
                file.wrote = (end - file.base) // ENTRY_BYTES
            kept.append(file)
        self._files = kept

    def put(self, offset: int, size: int, tags_code: int, queue_offset: int) -> None:
        """putMessagePositionInfo, for a record that recovery dispatches."""
        if offset + size <= self.max_physical_offset:
            return
        expected = queue_offset * ENTRY_BYTES
        file = self._last_file(expected)
        if queue_offset:
            if file is self._first_created and file.wrote == 0:
                self.min_logic_offset = expected
                file.wrote = expected % self.file_bytes // ENTRY_BYTES
                file.appendable()[: file.wrote] = (0, PREFILL_SIZE, 0)
            if expected < file.base + file.wrote * ENTRY_BYTES:
                return
        self.max_physical_offset = offset + size
        file.appendable()[file.wrote] = (offset, size, tags_code)
        file.wrote += 1

    def _last_file(self, expected: int) -> _File:
        """The file that the next entry goes to."""
        if not self._files:
            self._first_created = self._new_file(expected - expected % self.file_bytes)
        elif self._files[-1].wrote == self.file_bytes // ENTRY_BYTES:
            self._new_file(self._files[-1].base + self.file_bytes)
        return self._files[-1]

    def _new_file(self, base: int) -> _File:
        file = _File(base, 0, None, np.zeros(self.file_bytes // ENTRY_BYTES, CQ_DTYPE))
        self._files.append(file)
        return file

    def truncate(self, physical_offset: int) -> None:
        """truncateDirtyLogicFiles: drop the entries of records that recovery cut off."""
        self.max_physical_offset = physical_offset
        while self._files:
            last = self._files[-1]
            entries = last.entries()
            offsets = entries["physical_offset"].astype(np.int64)
            if offsets[0] >= physical_offset:
                self._files.pop()
                continue
            good = (offsets < physical_offset) & (offsets >= 0) & (_sizes(entries) > 0)
            good[0] = True  # the first entry is not asked whether it is one
            last.wrote = len(good) if good.all() else int(good.argmin())
            self.max_physical_offset = _end_of(entries, last.wrote - 1)
            return

    def correct_min_offset(self, min_physical_offset: int, rules: QueueRules) -> None:
        """correctMinOffset: the first entry whose record is still in the log."""
        if not self._files:
            return
        if rules.minimum_at_end and self._nothing_left(min_physical_offset):
            return
        first = self._files[0]
        known = max(0, (self.min_logic_offset - first.base) // ENTRY_BYTES)
        start = known if rules.minimum_from_known else 0
        in_log = first.entries()["physical_offset"][start : first.wrote].astype(np.int64) >= min_physical_offset
        if in_log.any():
            self.min_logic_offset = first.base + (start + int(in_log.argmax())) * ENTRY_BYTES

    def _nothing_left(self, min_physical_offset: int) -> bool:
        last = self._files[-1]
        end = last.base + last.wrote * ENTRY_BYTES
        if self.min_logic_offset >= end or not last.wrote:
            return True
        if int(last.entries()[last.wrote - 1]["physical_offset"]) >= min_physical_offset:
            return False
        self.min_logic_offset = end
        return True

    @property
    def min_offset(self) -> int:
        """Return the first queue offset, like getMinOffsetInQueue."""
        return self.min_logic_offset // ENTRY_BYTES

    @property
    def max_offset(self) -> int:
        """Return the next queue offset, like getMaxOffsetInQueue."""
        return (self._files[-1].base // ENTRY_BYTES + self._files[-1].wrote) if self._files else 0

    def entries(self) -> Iterator[Entries]:
        """The entries from the minimum to the maximum, as far as getIndexBuffer finds them, in parts."""
        at = self.min_offset
        for file in self._files:
            first = file.base // ENTRY_BYTES
            if not first <= at < first + file.wrote:
                continue
            yield file.entries()[at - first : file.wrote]
            at = first + file.wrote


def _sizes(entries: Entries) -> npt.NDArray[np.int64]:
    return entries["size"].astype(np.int64)


def _used(entries: Entries) -> int:
    """Return how many entries count from the first one on."""
    good = (entries["physical_offset"].astype(np.int64) >= 0) & (_sizes(entries) > 0)
    return len(good) if good.all() else int(good.argmin())


def _end_of(entries: Entries, index: int) -> int:
    return int(entries[index]["physical_offset"]) + int(entries[index]["size"])
