"""A valid side file, open: row groups by columns, whose bytes are compared with their sums before they are believed.

What a process has compared is remembered for the file as it was then; Parquet's own page checksums are compared by each
read. The file that is read is the one that was checked, whatever is put in its place meanwhile.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from spark_bridge.columnar.conditions import Limits
from spark_bridge.columnar.names import POSITION
from spark_bridge.columnar.side_file import COLUMN_NAMES, SUM_HEX_DIGITS, SideFile, check_open, digest_of
from spark_bridge.split.splits import LogExtent
from store.errors import SegmentRemoved, SegmentSizeMismatch, StoreError
from store.upkeep.side_files import data_path

if TYPE_CHECKING:
    import pyarrow.parquet as pq

CHUNKS_REMEMBERED_MAX = 1 << 16
NAMES = frozenset(COLUMN_NAMES)
DICTIONARIES = ("topic", "tags")  # few different ones, so they are asked as dictionaries
READ_ERRORS = (pa.ArrowException, OSError, ValueError)  # what pyarrow says of bytes that are not Parquet

_compared: OrderedDict[tuple[Any, ...], None] = OrderedDict()


class SideDamaged(StoreError):
    """Raised for a damaged side file; the segment itself has the rows.

    Next: `slipstream log sidecar STORE` rebuilds it.
    """

    code = "SIDE_FILE_DAMAGED"


class OpenSide:
    """One segment's side file; to be closed."""

    def __init__(self, side_file: SideFile, fd: int) -> None:
        """`fd` is the Parquet file that was checked. Raises SideDamaged, or one of READ_ERRORS."""
        import pyarrow.parquet as pq  # reads without side files do without it

        assert side_file.manifest is not None
        self.path, self.manifest, self._data, self._fd = side_file.path, side_file.manifest, side_file.data, fd
        status = os.fstat(fd)
        # ctime, which nobody can set: a copy that keeps its times may come to lie at the inode of one that was deleted
        self._identity = status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size
        self._file = pq.ParquetFile(
            pa.OSFile(f"/proc/self/fd/{fd}"), read_dictionary=list(DICTIONARIES), page_checksum_verification=True
        )
        self.limits = [_limits(self._file.metadata.row_group(at)) for at in range(self._file.num_row_groups)]
        if any(POSITION not in limits for limits in self.limits) or len(self.limits) != len(self._data.group_rows):
            raise SideDamaged(f"{self.path}: its footer does not contain the positions of its rows")

    @staticmethod
    def is_there(log: LogExtent, base_offset: int) -> bool:
        """Whether the segment lies in the log as a whole and has a side file, valid or not."""
        return is_sealed(log, base_offset) and data_path(log.root, base_offset).exists()

    @classmethod
    def of(cls, log: LogExtent, base_offset: int) -> Self | None:
        """The side file of a segment that lies in the log as a whole; None unless it is valid."""
        if not is_sealed(log, base_offset):
            return None
        try:
            side_file, fd = check_open(log.root, log.commitlog, base_offset, log.segment_bytes)
        except (SegmentRemoved, SegmentSizeMismatch, OSError):  # who reads the segment tells
            return None
        if fd is None:
            return None
        try:
            return cls(side_file, fd)
        except (SideDamaged, *READ_ERRORS):
            os.close(fd)
            return None

    def compare(self, names: Sequence[str]) -> None:
        """Raise SideDamaged unless all of these columns are what was written."""
        for group in range(len(self.limits)):
            self._compare(group, names)

    def read(self, group: int, names: Sequence[str]) -> pa.Table:
        """The columns of one row group. Raises SideDamaged."""
        try:
            self._compare(group, names)
            return self._file.read_row_group(group, columns=list(names))
        except READ_ERRORS as error:
            raise SideDamaged(f"{self.path}: {' '.join(str(error).split())}") from error

    def close(self) -> None:
        """Let go of the file."""
        self._file.close(force=True)
        os.close(self._fd)

    def _compare(self, group: int, names: Iterable[str]) -> None:
        """Compare the sum of each column chunk once, as long as the file stays as it is."""
        wanted = [name for name in names if (self._identity, group, name) not in _compared]
        if not wanted:
            return
        per_group = len(self._data.group_rows)
        chunks = self._data.chunks(wanted)
        for name, at, length, expected in chunks[group * len(chunks) // per_group :][: len(chunks) // per_group]:
            if digest_of(self._fd, at, at + length)[:SUM_HEX_DIGITS] != expected:
                raise SideDamaged(f"{self.path}: column {name} is damaged, at {at}")
        for name in wanted:
            _compared[self._identity, group, name] = None
        while len(_compared) > CHUNKS_REMEMBERED_MAX:
            _compared.popitem(last=False)


def is_sealed(log: LogExtent, base_offset: int) -> bool:
    """Whether the whole segment lies below the planned end; a store that is not known has no side files."""
    return bool(log.root) and base_offset + log.segment_bytes <= log.max_physical_offset


def _limits(group: pq.RowGroupMetaData) -> Limits:
    """Return what the footer says of the columns of one row group."""
    limits: dict[str, tuple[Any, Any]] = {}
    for at in range(group.num_columns):
        column = group.column(at)
        statistics = column.statistics
        if statistics is None or not statistics.has_min_max:
            continue
        is_number = statistics.physical_type in ("INT32", "INT64")
        low, high = (statistics.min_raw, statistics.max_raw) if is_number else (statistics.min, statistics.max)
        if is_number or (isinstance(low, str) and isinstance(high, str)):
            limits[column.path_in_schema] = low, high
    return limits
