"""A consume queue: where the n-th message of one (topic, queue id) lies in the log, in files of 20-byte entries.

Implements: ConsumeQueue (spec: store-formats, section 10)
Files have their full length from the beginning and are zeros where nothing is; a file's name is the byte offset of its
first entry. An entry counts when its size is above 0 (a message can lie at offset 0). A queue that starts above entry 0
(its older messages are not in this log) has its first file filled up to there with entries that point nowhere.

Written with pwrite, not through a mapping: a kill leaves whole pages, a full disk is an error, and the file's mtime
tells the flusher what to sync. Everything here is a function of the log and can be rebuilt from it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from ipc.descriptors import closing_fd
from store.errors import ForeignFile, QueueFileMismatch
from store.files import file_io, mapped_files
from store.files.directory import directories_in
from store.files.segment import file_name
from store.files.segment_files import OFFSET_MAX, named_files

CQ_DTYPE = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
ENTRY_BYTES = CQ_DTYPE.itemsize
ENTRY_SIZE_AT, ENTRY_TAGS_AT = (int(CQ_DTYPE.fields[name][1]) for name in ("size", "tags_code"))  # type: ignore[index]
PREFILL_SIZE = 0x7FFFFFFF
SMALL_FILE_BYTES = 16384
VALIDATED_FILES = 3  # of an extension, from the end
VALIDATED_ENTRIES = 100_000  # of a queue, from the end; RocketMQ's recovery looks at three files, 900,000 entries
FILE_NAME_BYTES_MAX = 255
QUEUE_ID_MAX = 2**31 - 1  # a Java int
QUEUE_ID_DIGITS = 10

Entries = npt.NDArray[np.void]


def file_bytes_of(configured_bytes: int) -> int:
    """A queue file's length: mappedFileSizeConsumeQueue rounded up to whole entries."""
    return -(-configured_bytes // ENTRY_BYTES) * ENTRY_BYTES


def is_file_name(topic: str) -> bool:
    """Whether a topic can be the name of its queues' directory: a version 2 record may have one of 65,535 bytes."""
    is_plain = bool(topic) and "/" not in topic and "\0" not in topic and topic not in (".", "..")
    return is_plain and len(topic.encode("utf-8", "surrogatepass")) <= FILE_NAME_BYTES_MAX


def queue_directories(consumequeue: Path) -> Iterator[tuple[str, int, Path]]:
    """(topic, queue id, directory) of every queue, sorted; directories that are not queue ids do not count.

    Raises ForeignFile when a file is in the place of the queues' directory.
    """
    for topic, queue_id, place in queue_places(consumequeue):
        yield topic, queue_id, Path(place)


def queue_places(consumequeue: Path, topics: Iterable[str] | None = None) -> Iterator[tuple[str, int, str]]:
    """Yield queues like `queue_directories`, with plain paths, as there may be very many; of some topics or all."""
    if not consumequeue.is_dir():
        if consumequeue.exists():
            raise ForeignFile(str(consumequeue), "a file has the name of the queues' directory")
        return
    for topic in directories_in(consumequeue) if topics is None else sorted(topics):
        below = f"{consumequeue}/{topic}"
        for name in sorted(filter(_is_queue_id, directories_in(below)), key=int):
            yield topic, int(name), f"{below}/{name}"


def _is_queue_id(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) <= QUEUE_ID_DIGITS and int(name) <= QUEUE_ID_MAX


def checked_files(directory: Path | str, file_bytes: int, unit_bytes: int) -> list[tuple[int, int]]:
    """(base, bytes) of a queue's files, of that length or (0) of the first one's. Raises QueueFileMismatch."""
    files = named_files(directory)
    for index, (base, size) in enumerate(files):
        wanted = file_bytes or files[0][1]
        in_place = base == files[0][0] + index * wanted and base % max(wanted, 1) == 0
        if not in_place or size != wanted or size == 0 or size % unit_bytes:
            raise QueueFileMismatch(f"{directory}/{file_name(base)}", size, wanted)
    return files


class ConsumeQueue:
    """One queue's files. Offsets are in entries; `dtype` is an entry, with fields physical_offset and size."""

    dtype: ClassVar[np.dtype[np.void]] = CQ_DTYPE

    def __init__(self, directory: Path, file_bytes: int) -> None:
        self.directory, self.file_bytes = directory, file_bytes

    @classmethod
    def open(cls, directory: Path | str, file_bytes: int | None = None) -> Self:
        """The queue in that directory; its files tell their length when the caller does not know it.

        Raises QueueFileMismatch when the files are not of one length, or leave a gap.
        """
        queue = cls(Path(directory), file_bytes or 0)
        files = queue._checked_files()
        queue.file_bytes = file_bytes or (files[0][1] if files else cls.dtype.itemsize)
        return queue

    def _checked_files(self) -> list[tuple[int, int]]:
        return checked_files(self.directory, self.file_bytes, self.dtype.itemsize)

    def bases(self) -> list[int]:
        """Byte offsets of the files, ascending."""
        return [base for base, _ in self._checked_files()]

    def map_file(self, base: int) -> Entries:
        """The entries of one file, read in place."""
        return self._map_file(base)[0]

    def _map_file(self, base: int) -> tuple[Entries, int]:
        """Map a file; also return how many entries have blocks: what lies behind was never written."""
        with closing_fd(file_io.open_file(self.directory / file_name(base), writable=False)) as fd:
            mapping = mapped_files.map_file(fd, os.fstat(fd).st_size, writable=False)
            return np.frombuffer(mapping, dtype=self.dtype), mapped_files.first_hole(fd) // self.dtype.itemsize

    @property
    def max_offset(self) -> int:
        """The queue offset that the next message gets: entries so far, those before the first file included."""
        return self.end_below(1 << 62)

    def end_below(self, physical_offset: int) -> int:
        """The first queue offset whose entry is not there or lies at or above `physical_offset` in the log."""
        return self.end_and_last(physical_offset)[0]

    def end_and_last(self, physical_offset: int) -> tuple[int, np.void | None]:
        """`end_below`, and the entry before it, unless that points nowhere."""
        bases = self.bases()
        for base in reversed(bases):
            entries = self._file(base)
            count = _count_below(entries, physical_offset)
            if count or base == bases[0]:
                last = entries[count - 1] if count and entries[count - 1]["size"] != PREFILL_SIZE else None
                return base // self.dtype.itemsize + count, last
        return 0, None

    def _file(self, base: int) -> Entries:
        """Return a file's entries like `map_file`; a small file is read, which is faster: there may be very many."""
        if self.file_bytes > SMALL_FILE_BYTES:
            entries, written = self._map_file(base)
            return entries[:written]
        with closing_fd(file_io.open_file(self.directory / file_name(base), writable=False)) as fd:
            return np.frombuffer(os.pread(fd, self.file_bytes, 0), dtype=self.dtype)

    def messages_end(self, end: int) -> int:
        """The queue offset behind the last message of the entries below `end`: here each is one message."""
        return end

    @property
    def min_offset(self) -> int:
        """Return the first queue offset that has a message of its own; `max_offset` without one."""
        bases = self.bases()
        if not bases:
            return 0
        entries = self._file(bases[0])
        own = entries["size"] != PREFILL_SIZE
        return bases[0] // self.dtype.itemsize + (int(own.argmax()) if own.any() else len(entries))

    def entries(self, start: int, end: int) -> Entries:
        """A copy of the entries [start, end); what is not in the files is left out."""
        per_file = self.file_bytes // self.dtype.itemsize
        parts = []
        for base in self.bases():
            first = base // self.dtype.itemsize
            low, high = max(start, first), min(end, first + per_file)
            if low < high:
                parts.append(self.map_file(base)[low - first : high - first])
        return np.concatenate(parts, dtype=self.dtype) if parts else np.empty(0, self.dtype)

    def last_entry(self, end: int) -> np.void | None:
        """The entry before queue offset `end`, unless it points nowhere."""
        last = self.entries(end - 1, end)
        return last[0] if len(last) and last[0]["size"] != PREFILL_SIZE else None

    # writing: one process, the dispatcher (or recovery before there is one)

    def append(
        self, queue_offset: int, entries: bytes | memoryview, keep: Callable[[int, int], None] | None = None
    ) -> None:
        """Write whole entries at `queue_offset`, which is the queue's end; makes the files it needs.

        `keep`: is given the last file's descriptor, which is its own then, and the file's first queue offset.
        """
        at, data = queue_offset * self.dtype.itemsize, memoryview(entries).cast("B")
        while len(data):
            base = at - at % self.file_bytes
            part = data[: base + self.file_bytes - at]
            fd = file_io.write_into_sparse(self.directory / file_name(base), part, at - base, self.file_bytes)
            at, data = at + len(part), data[len(part) :]
            if keep is None or len(data):
                os.close(fd)
            else:
                keep(fd, base // self.dtype.itemsize)

    @property
    def queue_offset_max(self) -> int:
        """The last one whose entry lies in a file that can have a name."""
        return (OFFSET_MAX - self.file_bytes) // self.dtype.itemsize

    def prefill(self, queue_offset: int) -> None:
        """Begin an empty queue at `queue_offset`: entries that point nowhere up to there, in its first file only."""
        per_file = self.file_bytes // self.dtype.itemsize
        self.point_nowhere(queue_offset - queue_offset % per_file, queue_offset)

    def point_nowhere(self, start: int, end: int) -> None:
        """Let the entries [start, end) stand for messages that are not in the log; what they say is lost."""
        nowhere = np.zeros(end - start, CQ_DTYPE)
        nowhere["size"] = PREFILL_SIZE
        self.append(start, nowhere.tobytes())

    def truncate(self, end: int) -> None:
        """Drop the entries from queue offset `end` on: files behind it go, the rest of its own becomes zeros."""
        for base in reversed(self.bases()):
            path, first = self.directory / file_name(base), base // self.dtype.itemsize
            if first >= end:
                file_io.unlink(path)
                continue
            mapped_files.clear(path, (end - first) * self.dtype.itemsize, self.file_bytes)
            return

    def sound_end(self, max_physical_offset: int) -> int:
        """The queue offset up to which the last entries make sense: sizes and offsets in order and inside the log."""
        end = self.end_below(max_physical_offset)
        start, unit = max(0, end - VALIDATED_ENTRIES), self.dtype.itemsize
        for base in self.bases():
            first = max(start, base // unit)
            if first >= end or base + self.file_bytes <= start * unit:
                continue
            entries = self.map_file(base)[first - base // unit : end - base // unit]
            sound = self._sound_count(entries, max_physical_offset)
            if sound < len(entries):
                return first + sound
        return end

    @staticmethod
    def _sound_count(entries: Entries, max_physical_offset: int) -> int:
        """Return how many entries from the first one on make sense."""
        offsets, sizes = entries["physical_offset"].astype(np.int64), entries["size"].astype(np.int64)
        nowhere = (sizes == PREFILL_SIZE) & (offsets == 0)
        ends = np.where(nowhere, 0, offsets + sizes)
        below = nowhere | (offsets <= max_physical_offset - sizes)  # sums could overflow
        good = (sizes > 0) & (offsets >= 0) & below
        good[1:] &= offsets[1:] >= ends[:-1]
        return int(good.argmin()) if not good.all() else len(good)


def _count_below(entries: Entries, physical_offset: int) -> int:
    """Return how many entries from the file's beginning are there and lie below `physical_offset`, by bisection."""
    low, high = 0, len(entries)
    while low < high:
        middle = (low + high) // 2
        if entries[middle]["size"] > 0 and entries[middle]["physical_offset"] < physical_offset:
            low = middle + 1
        else:
            high = middle
    return low
