"""Cuts a log at an offset that somebody chose, with its queues and its index: what recovery never does by itself.

The caller sees before what is cut: from the offset to the last byte that is not zero, and how many whole records. The
offset is noted in a journal first, durably: killed anywhere, the cut is finished by the next one or by the next start
of a broker, if nobody wrote to the log in between (`repair.journal`). The caller holds the store's lock.
"""

from __future__ import annotations

from typing import NamedTuple

from store.errors import IndexFileDamaged, NotAStore, OffsetOutOfRange
from store.files.checkpoint import Checkpoint
from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles
from store.index.geometry import geometry_of
from store.index.index_file import DEFAULT_GEOMETRY
from store.index.query import index_files
from store.index.service import IndexService
from store.message import rows_kernel as kernel
from store.message.rows_kernel import Row
from store.names import CUT_JOURNAL
from store.notes import flushed_mark
from store.queues.consume_queue import file_bytes_of
from store.queues.queue_set import kinds_found
from store.queues.sync import QueueSync, queue_file_bytes
from store.reading.origin import DEFAULT_QUEUE_FILE_BYTES, line_of_store
from store.recovery import log_end
from store.recovery.log_end import Dirty
from store.recovery.queues import QueueRecovery
from store.recovery.recovery import zero
from store.repair.journal import Bound, Journal
from store.repair.rebuild import forget_in_checkpoint
from store.verify import digests

JOURNAL_MAGIC = b"SLIPCUT2"


class Going(NamedTuple):
    """The part that a cut at `offset` takes away: everything up to `end`; `records` of it are whole."""

    offset: int
    end: int
    records: int


class LogCut:
    """A cut of one log."""

    def __init__(self, directory: StoreDirectory, files: SegmentFiles) -> None:
        self._directory, self._files = directory, files
        self._journal = Journal(directory.root / CUT_JOURNAL, JOURNAL_MAGIC, files)

    def going(self, offset: int) -> Going | None:
        """Return what lies behind the offset; None when no record ends or begins there. Raises OffsetOutOfRange."""
        bases = self._files.base_offsets()
        end = bases[-1] + self._files.segment_bytes if bases else 0
        if not bases or not bases[0] <= offset <= end:
            raise OffsetOutOfRange(str(self._directory.commitlog), offset, bases[0] if bases else 0, end)
        if not self._is_boundary(offset, end):
            return None
        dirty, records = self._dirty(offset), 0
        for part in dirty:
            records += self._records_in(part, offset)
        last = dirty[-1].base_offset + dirty[-1].end if dirty else offset
        return Going(offset, last, records)

    def cut(self, offset: int) -> None:
        """Cut there, at a boundary that `going` found. Raises OSError."""
        self._journal.run(offset, self._do)

    def finish(self) -> int | None:
        """Do again what an interrupted cut began; at which offset. None when there was none, or it was set aside.

        Raises OSError.
        """
        bound = self._journal.finish(self._do)
        return None if bound is None else bound.offset

    def _do(self, bound: Bound) -> None:
        offset = bound.offset
        forget_in_checkpoint(self._directory)
        self._forget_digests(offset)
        flushed_mark.lower(self._directory, offset)
        zero(self._files, self._dirty(offset))
        root = self._directory.root
        file_bytes = queue_file_bytes(self._directory.consumequeue) or file_bytes_of(DEFAULT_QUEUE_FILE_BYTES)
        queues = QueueRecovery(self._directory.consumequeue, file_bytes, kinds_found(root, line_of_store(root).queues))
        queues.cut(self._files, self._files.base_offsets()[0], offset, Checkpoint())
        QueueSync(self._directory.consumequeue, file_bytes).sync(0)
        self._cut_index(offset)

    def _cut_index(self, offset: int) -> None:
        """Files that do not say how they are laid out, without an entry or damaged, go: the next start makes others."""
        paths = index_files(self._directory.index)
        geometry = geometry_of(reversed(paths))
        index = IndexService(self._directory.index, *(geometry or DEFAULT_GEOMETRY))
        try:
            if geometry is None:
                index.delete(paths)
            index.cut(offset, lambda at: log_end.store_timestamp_ms(self._files, at) if at < offset else None)
        except IndexFileDamaged:
            index.delete(paths)
        index.close()
        index.sync()

    def _forget_digests(self, offset: int) -> None:
        """Remove digests of segments that are cut; an invalid file of digests is kept, and `log verify` reports it."""
        try:
            known = digests.read(self._directory.root)
        except NotAStore:
            return
        kept = {base: digest for base, digest in known.items() if base + self._files.segment_bytes <= offset}
        if kept != known:
            digests.write(self._directory.root, kept)

    def _is_boundary(self, offset: int, end: int) -> bool:
        base = self._files.base_of(offset)
        if offset in (base, end) or log_end.bytes_missing(self._files, base, offset) == 0:
            return True
        with self._files.open(base) as segment:  # what lies before it in the segment may be damaged
            at, rows = offset - base, log_end.new_rows(1)
            return int(kernel.find_record(segment.array, at, at + 1, base, rows)) == at

    def _dirty(self, offset: int) -> list[Dirty]:
        """Return every segment's bytes from the offset on that are not zero."""
        parts = []
        for base in self._files.base_offsets():
            if base + self._files.segment_bytes <= offset:
                continue
            with self._files.open(base) as segment:
                ranges = list(log_end.not_zero(segment, max(0, offset - base)))
            if ranges:
                parts.append(Dirty(base, ranges[0][0], ranges[-1][1]))
        return parts

    def _records_in(self, part: Dirty, offset: int) -> int:
        rows, count = log_end.new_rows(1), 0
        at = max(0, offset - part.base_offset, part.start - kernel.BLANK_BYTES)  # a record's first bytes may be zeros
        with self._files.open(part.base_offset) as segment:
            while at < part.end:
                at = int(kernel.find_record(segment.array, at, part.end, part.base_offset, rows))
                if at < 0:
                    break
                is_sound = int(kernel.first_bad_crc(segment.array, rows, 1)) < 0
                count += is_sound
                at += int(rows[0, Row.SIZE]) if is_sound else 1
        return count
