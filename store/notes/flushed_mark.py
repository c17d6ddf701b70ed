"""How far the log was on disk, in which boot and at which place: noted beside the store, without an fsync of its own.

File `slipstream.mark`, two pages of 4096 bytes, written in turn; the one that says more counts. The flusher writes it
after an fdatasync of the log and only begins to write it out: the next fdatasync of the log takes it to disk with it.
So it may say less than was on disk, never more. It says more than the checkpoint, which waits for the queues.
In a copy that was made while a broker ran it says nothing: the log was copied before it, or after.

offset  field (big-endian)
     0  magic "SLIPMARK"      8  boot id, 16 bytes     24  device, 32  inode of the store's root (both u64)
    40  CRC-32 of the checkpoint's times when the broker began (u32)
    44  flushed_offset i64: a record boundary          52  CRC-32 of bytes 0 to 51 (u32)

A RocketMQ broker that ran on the store in between leaves the mark and changes the checkpoint's times: then the mark
says nothing, as our part of the checkpoint does.
A mark of no boot (zeros) is that of a run whose disk failed: any page that the cache calls clean may not be there.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from ipc.process import boot_id
from store.files import checkpoint as checkpoint_file
from store.files import file_io
from store.files.directory import StoreDirectory
from store.files.place import Place

PAGE_BYTES = 4096
PAGES = 2
MAGIC = b"SLIPMARK"
NOTE = struct.Struct(">8s16sQQIq")
CRC = struct.Struct(">I")
NO_BOOT = bytes(16)


class Note(NamedTuple):
    """Content of one mark."""

    boot: bytes
    device: int
    inode: int
    checkpoint_sum: int
    flushed_offset: int

    @property
    def has_failed(self) -> bool:
        """Whether the disk failed under the run that wrote it."""
        return self.boot == NO_BOOT

    def is_of(self, root: Path) -> bool:
        """Whether it was written for the store at that root, not for one that this is a copy of."""
        return Place.of(root).is_same(Place("", self.device, self.inode))

    def is_copied_to(self, root: Path) -> bool:
        """Whether the store at that root is a copy of the one it was written for; with a new boot a device may have got
        another number."""
        here = Place.of(root)
        return here.inode != self.inode or (here.device != self.device and self.boot == this_boot())


def encode(note: Note) -> bytes:
    """Return the content of one page."""
    said = NOTE.pack(MAGIC, note.boot, note.device, note.inode, note.checkpoint_sum, note.flushed_offset)
    return said + CRC.pack(zlib.crc32(said))


def decode(content: bytes) -> Note | None:
    """Return what the pages say; None when none of them is whole."""
    notes = []
    for at in range(0, PAGES * PAGE_BYTES, PAGE_BYTES):
        said, crc = content[at : at + NOTE.size], content[at + NOTE.size : at + NOTE.size + CRC.size]
        if len(crc) == CRC.size and CRC.unpack(crc)[0] == zlib.crc32(said) and said.startswith(MAGIC):
            notes.append(Note(*NOTE.unpack(said)[1:]))
    return max(notes, key=lambda note: note.flushed_offset, default=None)


def read(directory: StoreDirectory) -> Note | None:
    """Return a store's mark; None without a valid one."""
    try:
        with directory.mark.open("rb") as file:
            return decode(file.read(PAGES * PAGE_BYTES))
    except (FileNotFoundError, IsADirectoryError):
        return None


def counts(note: Note, directory: StoreDirectory) -> bool:
    """Whether the checkpoint is one of ours, or still the one that our broker began with."""
    is_ours = checkpoint_file.read(directory.checkpoint).flushed_offset is not None
    return is_ours or checkpoint_file.sum_of_times(directory.checkpoint) == note.checkpoint_sum


def this_boot() -> bytes:
    """The boot that this machine runs in."""
    return UUID(boot_id()).bytes


def begin(directory: StoreDirectory, flushed_offset: int) -> None:
    """A broker begins: all of the log is on disk up to that offset. Durable when this returns. Raises OSError."""
    place, times = Place.of(directory.root), checkpoint_file.sum_of_times(directory.checkpoint)
    note = Note(this_boot(), place.device, place.inode, times, flushed_offset)
    file_io.replace_file(directory.mark, encode(note).ljust(PAGE_BYTES, b"\0") * PAGES)


def lower(directory: StoreDirectory, offset: int) -> None:
    """The log was cut there: no mark says more. Durable when this returns. Raises OSError."""
    last_note = read(directory)
    if last_note is not None and last_note.flushed_offset > offset:
        note = last_note._replace(flushed_offset=offset)
        file_io.replace_file(directory.mark, encode(note).ljust(PAGE_BYTES, b"\0") * PAGES)


class FlushedMark:
    """The mark as the flusher moves it; the only writer while a broker runs."""

    def __init__(self, directory: StoreDirectory) -> None:
        self._directory = directory
        self._fd = -1
        self._note: Note | None = None
        self._page = 0
        self.is_dirty = False  # what was noted last may not be on disk

    def note(self, flushed_offset: int) -> None:
        """The log is on disk up to there, a record boundary; the mark will be, soon. Raises OSError."""
        before = self._note or self._open(flushed_offset)
        if flushed_offset <= before.flushed_offset:
            return
        self._note = Note(before.boot, before.device, before.inode, before.checkpoint_sum, flushed_offset)
        self._page = 1 - self._page  # never the page that may be on its way to disk
        at = self._page * PAGE_BYTES
        file_io.write_at(self._fd, encode(self._note), at)
        file_io.start_writing(self._fd, at, PAGE_BYTES)
        self.is_dirty = True

    def disown(self, flushed_offset: int) -> None:
        """The disk failed: what comes next shall believe no page above what was on disk. Raises OSError.

        The failing disk need not take it: the page cache counts as long as this boot lasts, and after it nobody's does.
        """
        before = self._note or self._open(flushed_offset)
        self._note = before._replace(boot=NO_BOOT)
        for page in range(PAGES):
            file_io.write_at(self._fd, encode(self._note), page * PAGE_BYTES)

    def _open(self, flushed_offset: int) -> Note:
        last_note = read(self._directory)
        if last_note is None or last_note.boot != this_boot() or not last_note.is_of(self._directory.root):
            begin(self._directory, flushed_offset)
            last_note = read(self._directory)
            assert last_note is not None
        self._fd = file_io.open_file(self._directory.mark, writable=True)
        self._note = last_note
        return last_note

    def sync(self) -> None:
        """Bring what was noted to disk. Raises OSError."""
        if self.is_dirty:
            file_io.sync_data(self._fd)
            self.is_dirty = False

    def close(self) -> None:
        """Close the mark's file, if it is open."""
        fd, self._fd, self._note = self._fd, -1, None
        if fd >= 0:
            os.close(fd)
