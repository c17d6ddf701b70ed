"""A region: one file mapped by several processes, known by its magic, kind, layout and size.

Made 0640, its blocks reserved before they are touched, so a store through the mapping is never a SIGBUS; removed only
by the supervisor.

Header (4096 bytes, native 64-bit words; a region never leaves its machine):
word 0 magic | 1 version | 2 layout | 3 payload bytes | 4 creator's pid | 5 its start time | byte 64: kind, 32 bytes |
byte 128: the creator's version, 64 bytes
A layout is raised when words move or mean something else; what is only added is found, or missed, by its label.
The magic is stored last: a region without it is not finished.
"""

from __future__ import annotations

import errno
import mmap
import os
from enum import IntEnum
from pathlib import Path

import numpy as np

from ipc.arrays import Bytes, Words
from ipc.descriptors import closing_fd
from ipc.errors import OtherVersion, RegionDenied, RegionMismatch, RegionMissing, RegionNoSpace
from ipc.module_names import version_here
from ipc.process import hold_standard_descriptors, start_time

HEADER_BYTES = 4096
MAGIC = int.from_bytes(b"SLIPREGN", "little")
VERSION = 1
WORD_BYTES = 8
KIND_AT, KIND_BYTES = 64, 32
MADE_BY_AT, MADE_BY_BYTES = 128, 64
FILE_MODE = 0o640  # the group may read


class HeaderWord(IntEnum):
    """The words of a region's header."""

    MAGIC = 0
    VERSION = 1
    LAYOUT = 2
    PAYLOAD_BYTES = 3
    CREATOR_PID = 4
    CREATOR_START = 5


class Region:
    """A mapped region. `words` (int64) and `bytes` (uint8) are two views of the same payload, behind the header."""

    def __init__(self, path: Path, mapping: mmap.mmap) -> None:
        self.path = path
        self._mapping: mmap.mmap | None = mapping
        self.header: Words = np.frombuffer(mapping, dtype=np.int64, count=HEADER_BYTES // WORD_BYTES)
        self.bytes: Bytes = np.frombuffer(mapping, dtype=np.uint8, offset=HEADER_BYTES)
        self.words: Words = self.bytes[: len(self.bytes) // WORD_BYTES * WORD_BYTES].view(np.int64)

    @classmethod
    def create(
        cls, path: Path, payload_bytes: int, *, kind: str, layout: int, reserved_bytes: int | None = None
    ) -> Region:
        """A new region of zeros. Raises RegionNoSpace, or FileExistsError when the path is taken.

        With `reserved_bytes` only the beginning gets its blocks: its owner calls `reserve` before it touches the rest.
        """
        size = HEADER_BYTES + payload_bytes
        reserved = size if reserved_bytes is None else HEADER_BYTES + reserved_bytes
        hold_standard_descriptors()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            os.ftruncate(fd, size)
            _reserve(fd, path, 0, reserved)
            region = cls(path, mmap.mmap(fd, size))
        except (OSError, RegionNoSpace):
            os.unlink(path)
            raise
        finally:
            os.close(fd)
        for at, text, most in ((KIND_AT, kind, KIND_BYTES), (MADE_BY_AT, version_here(), MADE_BY_BYTES)):
            label = text.encode("ascii", "replace")[:most]
            region.header.view(np.uint8)[at : at + len(label)] = np.frombuffer(label, np.uint8)
        words = (VERSION, layout, payload_bytes, os.getpid(), start_time(os.getpid()) or 0)
        region.header[HeaderWord.VERSION : HeaderWord.CREATOR_START + 1] = words
        region.header[HeaderWord.MAGIC] = MAGIC
        return region

    @classmethod
    def attach(cls, path: Path, *, kind: str, layout: int, writable: bool = False) -> Region:
        """Map a region that another process made. Raises RegionMissing, RegionMismatch, OtherVersion."""
        hold_standard_descriptors()  # a mapping keeps a descriptor of its own
        try:
            fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise RegionMissing(path) from error
        except PermissionError:
            raise RegionDenied(path, path.parent.stat().st_uid, writable=writable) from None
        try:
            size = os.fstat(fd).st_size
            if size < HEADER_BYTES:
                raise RegionMismatch(path, f"{size} bytes are too few for a region")
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            region = cls(path, mmap.mmap(fd, size, access=access))
        finally:
            os.close(fd)
        wrong = region._mismatch(kind, layout, size)
        if wrong is not None:
            region.close()
            raise wrong
        return region

    def _mismatch(self, kind: str, layout: int, size: int) -> RegionMismatch | None:
        magic, version, found_layout, payload = (int(word) for word in self.header[: HeaderWord.CREATOR_PID])
        found_kind = self._text(KIND_AT, KIND_BYTES)
        if magic != MAGIC:
            return RegionMismatch(self.path, "the magic number is wrong")
        if found_kind != kind[:KIND_BYTES]:
            return RegionMismatch(self.path, f"a region of {found_kind!r} found, {kind!r} wanted")
        if (version, found_layout) != (VERSION, layout):
            reason = f"layout {version}.{found_layout} of its region {kind!r} found, {VERSION}.{layout} wanted"
            return OtherVersion(self.path, self.made_by, version_here(), reason)
        if payload != size - HEADER_BYTES:
            return RegionMismatch(self.path, f"{payload} bytes promised, {size - HEADER_BYTES} found")
        return None

    def _text(self, at: int, length: int) -> str:
        return bytes(self.header.view(np.uint8)[at : at + length]).rstrip(b"\0").decode("ascii", "replace")

    @property
    def made_by(self) -> str:
        """The version that made it; empty: one before there was a place for it."""
        return self._text(MADE_BY_AT, MADE_BY_BYTES)

    def reserve(self, start: int, length: int) -> None:
        """Blocks for a part of the payload that was made without. Raises RegionNoSpace."""
        with closing_fd(os.open(self.path, os.O_RDWR | os.O_CLOEXEC)) as fd:
            _reserve(fd, self.path, HEADER_BYTES + start, length)

    def close(self) -> None:
        """Unmap now if no view is left in use, else when the last one goes."""
        mapping, self._mapping = self._mapping, None
        empty = np.empty(0, np.int64)
        self.header, self.words, self.bytes = empty, empty, empty.view(np.uint8)
        if mapping is None:
            return
        try:
            mapping.close()
        except BufferError:
            del mapping  # an array of the caller still points into it; the last one to go unmaps it


def is_region(path: Path) -> bool:
    """Whether that file is a region, or one that its maker did not come to finish."""
    with open(path, "rb") as file:
        magic = file.read(WORD_BYTES)
    return len(magic) < WORD_BYTES or int.from_bytes(magic, "little") in (0, MAGIC)


def _reserve(fd: int, path: Path, start: int, length: int) -> None:
    try:
        os.posix_fallocate(fd, start, length)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        free = os.statvfs(path.parent)
        raise RegionNoSpace(path, length, free.f_bavail * free.f_frsize) from error
