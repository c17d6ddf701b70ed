"""Brings the index to the log's end before a broker's processes start: cut, checked, built again where it must be.

Implements: IndexService.load and the dispatch of recovery (spec: store-formats, 13, 17)
Our checkpoint notes the last file and entry that were on disk: what lies behind is cut, the slots are made again from
the entries after an abnormal end, and the log is dispatched from there. Without such a note (a RocketMQ broker's store)
files later than its checkpoint are deleted after an abnormal end, as RocketMQ does it, and the log is dispatched from
the last file's end, which RocketMQ leaves out. The index is a function of the log: whatever contradicts itself goes.
"""

from __future__ import annotations

from pathlib import Path

from ipc.arrays import Words
from store.errors import IndexFileDamaged
from store.files.checkpoint import Checkpoint
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles
from store.index import index_kernel
from store.index.index_file import Header, IndexFile
from store.index.service import IndexService
from store.message.rows_kernel import ScanStop, find_record, scan
from store.recovery import log_end

ROWS = 32768


def recover_index(
    index: IndexService,
    files: SegmentFiles,
    log_range: tuple[int, int],
    checkpoint: Checkpoint,
    *,
    clean: bool,
    same_boot: bool = False,
) -> list[str]:
    """Bring the index to the end of a log that holds that range; what was found. Raises OSError."""
    recovery = _IndexRecovery(index, files, *log_range)
    recovery.run(checkpoint, clean=clean, same_boot=same_boot)
    return recovery.findings


class _IndexRecovery:
    """Recovery of one index."""

    def __init__(self, index: IndexService, files: SegmentFiles, min_offset: int, max_offset: int) -> None:
        self._index, self._files, self._min_offset, self._max_offset = index, files, min_offset, max_offset
        self.findings: list[str] = []

    def run(self, checkpoint: Checkpoint, *, clean: bool, same_boot: bool) -> None:
        """Bring the index to the log's end; what only a power cut could have mixed up is made again only after one.

        Raises OSError.
        """
        try:
            start = self._start_by_note(checkpoint, clean or same_boot)
        except IndexFileDamaged:
            start = None  # the next step finds it again, and says so
        try:
            if not self._remove_unsound() or start is None:
                start = self._start_by_files(checkpoint, clean)
            self._dispatch(start)
        except IndexFileDamaged as damage:  # the headers made sense, what lies behind them does not
            self._delete(0, str(damage))
            self._dispatch(self._min_offset)
        self._index.close()

    def _start_by_note(self, checkpoint: Checkpoint, clean: bool) -> int | None:
        """Cut to what our checkpoint knows; where the dispatch goes on, None when it does not fit."""
        offset, count = checkpoint.index_offset, checkpoint.index_count
        if offset is None or (self._index.safe and not clean) or not self._min_offset <= offset <= self._max_offset:
            return None
        paths = self._index.files()
        numbers = [int(path.name) for path in paths]
        if not checkpoint.index_file:
            kept = 0
        elif checkpoint.index_file in numbers:
            kept = numbers.index(checkpoint.index_file) + 1
        else:
            later = sum(number < checkpoint.index_file for number in numbers)
            self._delete(later, f"the file {checkpoint.index_file} of the checkpoint is missing")
            return None
        if not clean:
            self._index.delete(paths[kept:])
        if kept and not self._holds(paths[kept - 1], count, offset, clean):
            self._delete(kept - 1, f"{paths[kept - 1]}: it lacks the {count - 1} entries that the checkpoint names")
            return None
        self._index.cut(offset, self._stored_at)
        return offset

    def _holds(self, path: Path, count: int, offset: int, clean: bool) -> bool:
        """Return whether the file's entries below `count` are those of the checkpoint, as far as the file shows it.

        After a power cut slots, entries and header may be of different moments: the first are made again, of the others
        only what the checkpoint noted is taken.
        """
        file = IndexFile.open(path, self._index.geometry, writable=True)
        header, (slots, entries_max) = file.require_sound_header() if clean else file.header, file.geometry
        if not 1 <= count <= min(header.index_count, entries_max):
            return False
        if clean:
            return file.count_below(offset) == count
        if index_kernel.chain_again(file.array, slots, count) != count:
            return False
        mended = header._replace(hash_slot_count=int((file.entries["previous"][1:count] == 0).sum()), index_count=count)
        if count > 1:
            last = int(file.entries[count - 1]["physical_offset"])
            stored_ms = self._stored_at(last)
            end_ms = header.end_timestamp_ms if stored_ms is None else stored_ms
            mended = mended._replace(end_physical_offset=last, end_timestamp_ms=end_ms)
        if mended != header:
            file.write_header(mended)
        index_kernel.clear(file.array, slots, count, min(header.index_count + 1, entries_max))
        return file.count_below(offset) == count

    def _remove_unsound(self) -> bool:
        """Delete the first file that contradicts itself or the log, and all behind; True when none does."""
        end = -1
        for number, path in enumerate(self._index.files()):
            try:
                header = IndexFile.open(path, self._index.geometry).require_sound_header()
                if header.begin_physical_offset < end:
                    raise IndexFileDamaged(str(path), 0, f"begins before offset {end}, where the file before it ends")
                self._compare_times(path, header)
            except IndexFileDamaged as damage:
                self._delete(number, str(damage))
                return False
            end = header.end_physical_offset
        return True

    def _compare_times(self, path: Path, header: Header) -> None:
        if header.index_count <= 1:
            return
        first = (header.begin_timestamp_ms, header.begin_physical_offset)
        last = (header.end_timestamp_ms, header.end_physical_offset)
        for time_ms, offset in (first, last):
            stored_ms = self._stored_at(offset)
            if stored_ms not in (None, time_ms):
                reason = f"its record at offset {offset} was stored at {stored_ms}, its header says {time_ms}"
                raise IndexFileDamaged(str(path), 0, reason)

    def _delete(self, first: int, because: str) -> None:
        paths = self._index.files()[first:]
        self._index.delete(paths)
        self.findings.append(f"{len(paths)} index files are rebuilt from the log: {because}")

    def _start_by_files(self, checkpoint: Checkpoint, clean: bool) -> int:
        """Return where the dispatch goes on by RocketMQ's rules; the last record that is in the index is put again."""
        deleted = self._index.load(clean=clean, index_msg_timestamp_ms=checkpoint.index_msg_timestamp_ms)
        if deleted:
            self.findings.append(f"{len(deleted)} index files later than the checkpoint are rebuilt from the log")
        end = self._end()
        if end > self._max_offset:
            self._index.cut(self._max_offset, self._stored_at)
            end = self._end()
        if end < self._min_offset:
            return self._min_offset
        if self._stored_at(end) is None and self._index.files():
            self._delete(0, f"no record begins at offset {end}, where the index ends")
            return self._min_offset
        self._index.cut(end, self._stored_at)
        return end

    def _end(self) -> int:
        """The offset of the last record in the index."""
        paths = self._index.files()
        return IndexFile.open(paths[-1], self._index.geometry).header.end_physical_offset if paths else -1

    def _stored_at(self, offset: int) -> int | None:
        """Return the store time of the record at an offset; None where there is no record."""
        if not self._min_offset <= offset < self._max_offset:
            return None
        return log_end.store_timestamp_ms(self._files, offset)

    def _dispatch(self, offset: int) -> None:
        rows = log_end.new_rows(ROWS)
        while offset < self._max_offset:
            base = self._files.base_of(offset)
            with self._files.open(base) as segment:
                offset = base + self._dispatch_segment(segment, offset - base, rows)

    def _dispatch_segment(self, segment: Segment, position: int, rows: Words) -> int:
        """The segment's records from `position` on; where it ends, or where the log does."""
        base, limit = segment.base_offset, min(self._max_offset - segment.base_offset, segment.size_bytes)
        while position < limit:
            start = position
            position, count, stop = scan(segment.array, start, limit, base, rows)
            self._index.put(segment, rows, count)
            if stop == ScanStop.BLANK:
                return segment.size_bytes
            if position == start:
                following = find_record(segment.array, start + 1, limit, base, rows)
                if stop != ScanStop.PARTIAL:
                    self.findings.append(f"{segment.path}: record at offset {base + start} is damaged: no keys")
                position = following if following >= 0 else limit
        return limit
