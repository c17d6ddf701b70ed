"""A segment: one fixed-size file of the log, mapped into memory.

Its file name is the log offset of its first byte, so finding the segment for an offset is arithmetic. One process
writes; any number read in place, below a published cursor.

Implements: MappedFile (spec: store-formats, section 9)
Invariant: bytes below the log's end never change; bytes at and above it are not data yet, whatever they hold.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from store.errors import SegmentSizeMismatch
from store.files import file_io, mapped_files

NAME_DIGITS = 20


def file_name(base_offset: int) -> str:
    """The name of the file that starts at this offset."""
    return f"{base_offset:0{NAME_DIGITS}d}"


class Segment:
    """An open segment. `view` and `array` are the same bytes; `fd` is for sendfile and fdatasync."""

    def __init__(self, path: Path, fd: int, mapping: mmap.mmap) -> None:
        self.path = path
        self.base_offset = int(path.name)
        self.fd = fd
        self.size_bytes = len(mapping)
        self._mapping: mmap.mmap | None = mapping
        self.view = memoryview(mapping)
        self.array: npt.NDArray[np.uint8] = np.frombuffer(mapping, dtype=np.uint8)

    @classmethod
    def open(cls, path: Path, writable: bool = False, size_bytes: int | None = None) -> Self:
        """Map an existing file; `size_bytes` is the length it must have. Raises SegmentSizeMismatch."""
        fd = file_io.open_file(path, writable)
        try:
            actual_bytes = os.fstat(fd).st_size
            if actual_bytes == 0 or (size_bytes is not None and actual_bytes != size_bytes):
                raise SegmentSizeMismatch(str(path), actual_bytes, size_bytes or 0)
            return cls(path, fd, mapped_files.map_file(fd, actual_bytes, writable))
        except BaseException:
            os.close(fd)
            raise

    @property
    def end_offset(self) -> int:
        """The log offset behind the segment's last byte."""
        return self.base_offset + self.size_bytes

    def take_pages_alone(self) -> None:
        """Have pages come one by one, for a log of which a little is brought to disk again and again.

        What is read ahead comes in pieces of up to 2 MiB, and a store into one page makes all of its piece dirty.
        """
        if self._mapping is not None:
            self._mapping.madvise(mmap.MADV_RANDOM)

    def close(self) -> None:
        """Close the file; unmap it now if nobody holds a view of it, else when the last view goes."""
        mapping, self._mapping = self._mapping, None
        if mapping is None:
            return
        os.close(self.fd)
        self.array = np.empty(0, np.uint8)
        self.view = memoryview(b"")
        try:
            mapping.close()
        except BufferError:
            del mapping  # a reader's array still points into it; the last one to go unmaps it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
