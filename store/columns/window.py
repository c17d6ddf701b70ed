"""One mapped segment below the limit that was planned, and why bytes in it do not begin a record.

Everything is cut at the limit: the views end there, so no later byte can be read by mistake.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ipc.arrays import Bytes, Int32s
from store.errors import CorruptRecord
from store.message.record import FIXED_BYTES, MAGIC_AT, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT
from store.message.walk_kernel import HEAD_BYTES

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class LogWindow:
    """One segment's bytes below the planned limit, readable as any type at any byte."""

    def __init__(self, path: str, base_offset: int, array: Bytes, limit_offset: int, broker_name: str = "") -> None:
        self.path = path
        self.broker_name = broker_name
        self.base_offset = base_offset
        self.segment_bytes = len(array)
        self.bytes = array[: max(0, limit_offset - base_offset)]
        self.bytes.flags.writeable = False
        self.length = len(self.bytes)
        self.buffer = pa.py_buffer(self.bytes)
        self._views: dict[str, npt.NDArray[Any]] = {}

    def view(self, code: str) -> npt.NDArray[Any]:
        """The bytes as an overlapping array of `code`: item i is the value at byte i."""
        array = self._views.get(code)
        if array is None:
            count = max(0, self.length - np.dtype(code).itemsize + 1)
            array = self._views[code] = np.ndarray((count,), code, self.bytes.data if count else b"", strides=(1,))
        return array

    def int32(self, positions: Positions) -> Int32s:
        """The big-endian int32 at each position, in native order."""
        return self.view(">i4")[positions].astype(np.int32)

    def int64(self, positions: Positions) -> Positions:
        """The big-endian int64 at each position, in native order."""
        return self.view(">i8")[positions].astype(np.int64)

    def offsets(self, positions: Positions) -> Positions:
        """The log offset of the record at each position."""
        return positions + self.base_offset

    def corrupt(self, position: int, reason: str) -> CorruptRecord:
        """The error for the record at `position`."""
        return CorruptRecord(self.path, self.base_offset + int(position), reason)


class CopiedRecords(LogWindow):
    """Records in memory of their own, one behind the other: a position is no place in the log."""

    def __init__(self, path: str, array: Bytes, broker_name: str) -> None:
        super().__init__(path, 0, array, len(array), broker_name)

    def offsets(self, positions: Positions) -> Positions:
        """Return what each record says about where it lies."""
        return self.int64(positions + PHYSICAL_OFFSET_AT)

    def corrupt(self, position: int, reason: str) -> CorruptRecord:
        """The error for the record whose copy is at `position`."""
        return CorruptRecord(self.path, int(self.view(">i8")[position + PHYSICAL_OFFSET_AT]), reason)


def what_is_wrong(window: LogWindow, position: int) -> str:
    """Return why the bytes at `position` do not begin a record of the segment; empty when they do."""
    if window.length - position < HEAD_BYTES:
        return "the segment ends inside the record's header"
    magic = int(window.view(">u4")[position + MAGIC_AT])
    if magic not in (MAGIC_V1, MAGIC_V2):
        return f"expected a record, found magic code {magic:#010x}"
    named = int(window.view(">i8")[position + PHYSICAL_OFFSET_AT])
    if named != window.base_offset + position:
        return f"the record names itself as offset {named}"
    size = int(window.view(">i4")[position])
    if size < FIXED_BYTES:
        return f"record of size {size}, the least is {FIXED_BYTES}"
    if position + size > window.segment_bytes:
        return f"its size {size} reaches beyond the end of the segment"
    return ""
