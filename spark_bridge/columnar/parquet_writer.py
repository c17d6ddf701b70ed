"""Rows as a Parquet file that tells of each of its bytes: encodings, row groups of a bounded size, digests.

Offsets and times rise, so their differences are stored; what repeats is stored once a row group. With that zstd at its
lowest level takes the least room and costs no reader anything (measured with Spark, polars and pyarrow).
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spark_bridge.columnar.segment_rows import ENCODED_SCHEMA
from spark_bridge.columnar.side_file import (
    COLUMN_NAMES,
    FOOTER_TAIL_BYTES,
    MAGIC_BYTES,
    ROW_GROUP_ROWS_MAX,
    SUM_HEX_DIGITS,
    DataFile,
    digest_of,
)
from store.files import file_io

ROW_GROUP_BYTES_MAX = 64 << 20  # of rows in memory
ENCODINGS = {
    "queueOffset": "DELTA_BINARY_PACKED",
    "physicalOffset": "DELTA_BINARY_PACKED",
    "bornTimestamp": "DELTA_BINARY_PACKED",
    "storeTimestamp": "DELTA_BINARY_PACKED",
    "msgId": "DELTA_BYTE_ARRAY",
    "keys": "DELTA_BYTE_ARRAY",
}


class ParquetFile:
    """A Parquet file in the making, under a name of its own until `finish`."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + file_io.CREATING_SUFFIX)
        file_io.unlink(self.path)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self.path, flags, file_io.FILE_MODE)
        os.fchmod(self._fd, file_io.FILE_MODE)  # whatever this user's umask is: other readers have to read it
        self._sink = _Sink(self._fd)
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0
        self._writer: pq.ParquetWriter | None = None
        try:
            self._writer = pq.ParquetWriter(
                pa.PythonFile(self._sink, mode="w"),
                ENCODED_SCHEMA,
                compression="ZSTD",
                compression_level=1,
                use_dictionary=[name for name in COLUMN_NAMES if name not in ENCODINGS],
                column_encoding=ENCODINGS,
                version="2.6",
                data_page_version="1.0",
                write_page_checksum=True,
                store_schema=False,
            )
        except BaseException:
            self.close()
            raise

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; a full row group is written. Raises OSError."""
        while len(batch):
            part = batch[: ROW_GROUP_ROWS_MAX - self._held_rows]
            batch = batch[len(part) :]
            self._held.append(part)
            self._held_rows, self._held_bytes = self._held_rows + len(part), self._held_bytes + part.nbytes
            if self._held_rows >= ROW_GROUP_ROWS_MAX or self._held_bytes >= ROW_GROUP_BYTES_MAX:
                self._write_group()

    def _write_group(self) -> None:
        assert self._writer is not None
        table = pa.Table.from_batches(self._held, ENCODED_SCHEMA).unify_dictionaries()
        self._held, self._held_rows, self._held_bytes = [], 0, 0
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS_MAX)

    def finish(self, path: Path) -> DataFile:
        """The whole file on disk, under its name. Raises OSError."""
        if self._held:
            self._write_group()
        assert self._writer is not None
        self._writer.close()
        file_io.sync_file(self._fd)
        written = data_file(self._fd, self._sink.digest.hexdigest())
        file_io.rename(self.path, path)
        file_io.sync_directory(path.parent)
        return written

    def close(self) -> None:
        """Give the file back; one that was not finished is gone."""
        if self._fd >= 0:
            self._sink.is_over = True
            if self._writer is not None:
                with suppress(OSError, pa.ArrowException):  # it writes a footer, also of what failed
                    self._writer.close()
            os.close(self._fd)
            self._fd = -1
            file_io.unlink(self.path)


def data_file(fd: int, sha256: str) -> DataFile:
    """Return what the manifest says of a Parquet file that was just written: its parts and their sums."""
    with os.fdopen(os.dup(fd), "rb") as file:
        metadata = pq.read_metadata(file)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    length = os.fstat(fd).st_size
    at, sums = MAGIC_BYTES, dict.fromkeys(COLUMN_NAMES, "")
    chunk_bytes: dict[str, list[int]] = {name: [] for name in COLUMN_NAMES}
    for group in groups:
        for place, name in enumerate(COLUMN_NAMES):
            chunk = group.column(place)
            begin = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
            assert (chunk.path_in_schema, begin) == (name, at), "chunks lie one behind the other"
            chunk_bytes[name].append(chunk.total_compressed_size)
            sums[name] += digest_of(fd, at, at + chunk.total_compressed_size)[:SUM_HEX_DIGITS]
            at += chunk.total_compressed_size
    assert length - at == metadata.serialized_size + FOOTER_TAIL_BYTES, "nothing but the footer lies behind the chunks"
    return DataFile(
        length,
        length - at,
        digest_of(fd, at, length),
        sha256,
        tuple(group.num_rows for group in groups),
        {name: tuple(each) for name, each in chunk_bytes.items()},
        sums,
    )


class _Sink:
    """The file that Arrow writes to: a descriptor, through the calls in which tests make disks fail."""

    def __init__(self, fd: int) -> None:
        self._fd, self._at, self.closed = fd, 0, False
        self.is_over = False  # what Arrow still writes then goes nowhere: the descriptor may soon be another file's
        self.digest = hashlib.sha256()

    def write(self, data: bytes | memoryview) -> int:
        """Write all the data at the end."""
        view = memoryview(data).cast("B")
        if self.is_over:
            return len(view)
        file_io.write_at(self._fd, view, self._at)
        self.digest.update(view)
        self._at += len(view)
        return len(view)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._at

    def flush(self) -> None:
        """Do nothing: `finish` syncs the file."""

    def writable(self) -> bool:
        """True, as pyarrow asks a file."""
        return True

    def readable(self) -> bool:
        """False, as pyarrow asks a file."""
        return False

    def seekable(self) -> bool:
        """False, as pyarrow asks a file."""
        return False

    def close(self) -> None:
        """The descriptor stays: it is synced, and read once more."""
        self.closed = True
