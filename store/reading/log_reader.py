"""A store's commit log opened for reading: its files, and how far they may be read, with a broker or without.

With a broker the end is its published cursor. Without one it is found by walking the records of the last segment that
has any: the log tools' quick answer. What a broker would do about damage before that point is asked of
`store.verify.verification` or `store.recovery.recovery`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from store.errors import CorruptRecord, OffsetOutOfRange
from store.files.directory import StoreDirectory, store_directory
from store.files.segment_files import SegmentFiles, named_files, segment_bytes_of
from store.message.record import Kind, inspect
from store.reading.extent import readable_range, running
from store.reading.walk import next_record, sound_records
from store.recovery import lost_log


class LogReader(NamedTuple):
    """The log as it was when it was opened; `max_offset` is the end of what may be read."""

    directory: StoreDirectory
    files: SegmentFiles | None  # None: no segment yet
    min_offset: int
    max_offset: int
    live: bool

    def boundary_at(self, offset: int) -> int:
        """The first record's offset at or behind `offset`. Raises OffsetOutOfRange."""
        if self.files is None or not self.min_offset <= offset <= self.max_offset:
            raise OffsetOutOfRange(str(self.directory.commitlog), offset, self.min_offset, self.max_offset)
        while offset < self.max_offset:
            base = self.files.base_of(offset)
            with self.files.open(base) as segment:
                position = next_record(segment, offset - base, self.max_offset)
            if position is not None:
                return base + position
            offset = base + self.files.segment_bytes
        return self.max_offset


def open_log(root: Path | str) -> LogReader:
    """Open the log of a store. Raises NotAStore, LogMissing, SegmentSizeMismatch, MissingSegment, CorruptRecord."""
    directory = store_directory(root)
    broker, bases = running(root), [base for base, size in named_files(directory.commitlog) if size]
    if broker is None:
        lost_log.require(directory, bases)
    if not bases:
        return LogReader(directory, None, 0, 0, broker is not None)
    files = SegmentFiles(directory.commitlog, segment_bytes_of(directory.commitlog))
    if broker is not None:
        limits = readable_range(root)
        return LogReader(directory, files, limits.min_physical_offset, limits.max_physical_offset, True)
    bases = files.base_offsets()
    return LogReader(directory, files, bases[0], _end(files, bases), False)


def _end(files: SegmentFiles, bases: list[int]) -> int:
    """Return where the records of the last segment that has any end.

    Raises CorruptRecord where the log begins with none.
    """
    for base in reversed(bases):
        with files.open(base) as segment:
            end = 0
            for starts, sizes in sound_records(segment, 0, segment.size_bytes):
                end = int(starts[-1] + sizes[-1]) if len(starts) else end
            behind = inspect(segment.view, end, base + end, check_body_crc=False)
            if end or behind.kind is Kind.BLANK:
                return base + end + (behind.size if behind.kind is Kind.BLANK else 0)
    if behind.reason:
        raise CorruptRecord(str(files.path_of(bases[0])), bases[0], behind.reason)
    return bases[0]
