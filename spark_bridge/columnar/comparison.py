"""A side file against its segment, row by row: what `slipstream log sidecar --check` adds to digests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from spark_bridge.columnar.segment_rows import SCHEMA, SegmentRows, Unfit
from spark_bridge.columnar.side_file import COLUMN_NAMES, SideFile, digest_of
from store.columns.window import LogWindow
from store.errors import CorruptRecord
from store.files import small_files
from store.files.segment_files import SegmentFiles

PLACE = COLUMN_NAMES.index("physicalOffset")


class Differs(Exception):
    """Raised where a side file does not say what its segment says; the text says where."""


def compare(files: SegmentFiles, base_offset: int, one: SideFile) -> Iterator[int]:
    """Compare every row of a valid side file with the log; yields how many bytes of the segment are done.

    Raises Differs, SegmentRemoved, OSError.
    """
    fd = small_files.open_plain(one.path)
    try:
        if digest_of(fd, 0, one.data.file_bytes) != one.data.sha256:
            raise Differs("its bytes differ from those that were written")
        with files.open(base_offset) as segment, os.fdopen(os.dup(fd), "rb") as file:
            rows = SegmentRows(LogWindow(str(segment.path), base_offset, segment.array, segment.end_offset))
            yield from _compared(rows, pq.ParquetFile(file, page_checksum_verification=True))
    except (Unfit, CorruptRecord) as error:
        raise Differs(f"the segment no longer has rows: {error}") from None
    except pa.ArrowException as error:
        raise Differs(f"it cannot be read: {error}") from None
    finally:
        os.close(fd)


def _compared(rows: SegmentRows, file: pq.ParquetFile) -> Iterator[int]:
    said = _Rows(file)
    for batch in (encoded.cast(SCHEMA) for encoded in rows.batches()):
        beside = said.take(len(batch))
        if not beside.equals(batch):
            raise Differs(_difference(batch, beside))
        yield rows.done_bytes
    if said.take(1).num_rows:
        raise Differs("it has more rows than its segment has records")


class _Rows:
    """A Parquet file's rows, as many at a time as are asked for; one row group in memory."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._file, self._group = file, 0
        self._left = SCHEMA.empty_table()

    def take(self, count: int) -> pa.RecordBatch:
        """The next rows, fewer at the end."""
        parts = []
        while count:
            if not len(self._left):
                if self._group == self._file.num_row_groups:
                    break
                self._left = self._file.read_row_group(self._group, use_threads=False)
                self._group += 1
            parts.append(self._left.slice(0, count))
            self._left = self._left.slice(len(parts[-1]))
            count -= len(parts[-1])
        taken = pa.concat_tables(parts) if parts else SCHEMA.empty_table()
        arrays = [pa.concat_arrays(column.chunks) for column in taken.cast(SCHEMA).columns if column.num_chunks]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA) if arrays else pa.RecordBatch.from_pylist([], SCHEMA)


def _difference(batch: pa.RecordBatch, beside: pa.RecordBatch) -> str:
    """Return the first row and column that differ, in words."""
    for row in range(min(len(batch), len(beside))):
        for place, name in enumerate(COLUMN_NAMES):
            if batch.column(place)[row] != beside.column(place)[row]:
                return f"the record at offset {batch.column(PLACE)[row].as_py()} has another {name} than its row"
    return f"it ends before the record at offset {batch.column(PLACE)[len(beside)].as_py()}"
