"""Logs in real files, made of real records, and the histories that they must be windows of.

A history is all that one master ever wrote, from offset 0 on, with what it had before; it forks where a log is cut and
written on. No two records are equal: whose a byte is, is seen.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from operator import gt
from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory

from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.files import file_io
from store.files.directory import StoreDirectory
from store.files.pointer import COUNTERS_FILE
from store.files.segment_files import SegmentFiles
from store.message.record import (
    FIXED_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    encode,
    store_timestamp_at,
)
from store.notes import divergence, flushed_mark, log_begin
from store.recovery import recovery
from store.recovery.last_run import LastRun

HEAD, OFFSET, OFFSETS = Struct(">iI"), Struct(">q"), Struct(">qq")
TOPIC = "t"
STORED_AT, STORED_MS = store_timestamp_at(0), 1 << 42  # a store time after all others stays: they never fall
PAGE_BYTES = 512  # of what a disk keeps or loses: a sector
QUEUE_FILE_BYTES = 2000
# Few, so that histories come to equal offsets.
SIZES = (FIXED_BYTES + 2, 96, 128, 128, 200, 333, 700)


@cache
def counters_of(number: int) -> BrokerCounters:
    """Return counters of this process: making them takes longer than a play does with them. No file of them is left."""
    with TemporaryDirectory() as directory:
        return BrokerCounters.create(Path(directory) / f"{number}.{COUNTERS_FILE}")


@cache
def _bodiless_bytes(magic: int) -> int:
    return len(encode(topic=TOPIC, body=b"", magic=magic))


@dataclass(eq=False)
class Put:
    """A message that a producer has put; where it is once it was seen in the log."""

    record: bytes
    in_sync_slaves: int
    began_ms: int
    start: int = -1
    data: bytes = b""

    @property
    def end(self) -> int:
        """Return where in the log it ends."""
        return self.start + len(self.record)

    def stored_at(self, start: int, queue_offset: int) -> bytes:
        """Return the record as a writer stores it there."""
        self.start = start
        offsets, stored = OFFSETS.pack(queue_offset, start), OFFSET.pack(STORED_MS)
        record = self.record[:QUEUE_OFFSET_AT] + offsets + self.record[SYS_FLAG_AT:]
        self.data = record[:STORED_AT] + stored + record[STORED_AT + OFFSET.size :]
        return self.data


class History:
    """What masters wrote, one after the other, each going on where the one before ended or was cut."""

    def __init__(self, name: str, before: bytes = b"") -> None:
        self.name = name
        self.data = bytearray(before)
        self.pending = deque[Put]()  # what the ring of the present one holds
        self.queue_offset = 0  # of the next record


def record_of(rng: random.Random) -> bytes:
    """Return a record as a producer encodes it."""
    size, magic = rng.choice(SIZES), rng.choice((MAGIC_V1, MAGIC_V2))
    body = rng.randbytes(size - _bodiless_bytes(magic))
    return encode(topic=TOPIC, body=body, born_timestamp_ms=rng.getrandbits(40), magic=magic)


def heads(data: bytes | bytearray) -> Iterator[tuple[int, int, int]]:
    """Yield where each whole record of a log begins, its size, and its magic number."""
    at = 0
    while at + HEAD.size <= len(data):
        size, magic = HEAD.unpack_from(data, at)
        if at + size > len(data):
            return
        yield at, size, magic
        at += size


class Log:
    """The store of one node, and the counters of its broker: they say where the log begins and ends, and is on disk."""

    def __init__(self, root: Path, counters: BrokerCounters, segment_bytes: int, disks: Disks) -> None:
        self.root, self.counters, self._disks = root, counters, disks
        self.directory = StoreDirectory(root)
        self.directory.create()
        self.files = SegmentFiles(self.directory.commitlog, segment_bytes)
        self.data = bytearray()  # what of it is published, from `_from` on, as it was read when it was published
        self._from = 0
        self.queue_offsets = dict[tuple[str, int], int]()  # as its last recovery found them
        self.directory.mark_running()  # nothing here ever stops in order
        self.words = memoryview(counters.region.words)  # which is read faster than its cursors
        self._places = [word.index for word in (counters.min_physical_offset, counters.max_physical_offset)]
        self._flushed = counters.flushed_offset.index
        counters.region.words[:] = 0

    def recover(self, *, is_slave: bool, power_cut: bool = False) -> None:
        """Have the real recovery decide where it ends, and set the counters as a starting broker does.

        `is_slave`: what wrote here last; `power_cut`: how that ended.
        """
        note = flushed_mark.read(self.directory)
        marked = 0 if note is None else note.flushed_offset
        last = LastRun(not power_cut, power_cut, marked, None if power_cut else self.end)
        recovered = recovery.recover(
            self.directory, self.files.segment_bytes, QUEUE_FILE_BYTES, last=last, is_slave=is_slave
        )
        start, end, bases = recovered.min_physical_offset, recovered.max_physical_offset, self.files.base_offsets()
        counters, is_empty = self.counters, is_slave and start == end == 0
        counters.region.words[:] = 0
        for cursor, value in (
            (counters.min_physical_offset, start), (counters.max_physical_offset, end), (counters.flushed_offset, end),
            (counters.allocated_offset, bases[-1] + self.files.segment_bytes if bases else 0),
            (counters.recovered_offset, end), (counters.segment_request_offset, -1 if is_empty else end),
        ):  # fmt: skip
            waiting.note(cursor, value)
        self.look()
        flushed_mark.begin(self.directory, end)
        self.queue_offsets = recovered.queue_offsets

    @property
    def start(self) -> int:
        """Where it begins."""
        return self.words[self._places[0]]

    @property
    def end(self) -> int:
        """Where it ends for everybody."""
        return self.words[self._places[1]]

    @property
    def flushed(self) -> int:
        """Up to where it is on the disk."""
        return self.words[self._flushed]

    @contextmanager
    def unsaid(self) -> Iterator[None]:
        """Let the counters be as before, whatever happens in the block: who is killed says nothing more."""
        words = self.counters.region.words
        before = words.copy()
        yield
        words[:] = before

    @property
    def lacks_segment(self) -> bool:
        """Whether somebody waits for a segment."""
        return self.counters.segment_request_offset.read() >= self.counters.allocated_offset.read()

    @property
    def is_diverged(self) -> bool:
        """Whether it is noted beside it, until an operator acts, that it is another history than its master's."""
        return divergence.path_of(self.root).exists()

    def forgive(self) -> None:
        """An operator removes that note."""
        divergence.path_of(self.root).unlink(missing_ok=True)

    def look(self) -> None:
        """Read what was published since, and forget what has expired."""
        start, end = self.start, self.end
        if start != self._from:
            del self.data[: start - self._from]
            self._from = start
        known = start + len(self.data)
        if end > known:
            self.data += self._stored(known, end)
        elif end < known:
            del self.data[end - start :]

    def _stored(self, start: int, end: int) -> bytes:
        stored = b""
        while start < end:
            base = self.files.base_of(start)
            fd = self.files.descriptor(base)
            piece = os.pread(fd, min(end, base + self.files.segment_bytes) - start, start - base)
            os.close(fd)
            stored, start = stored + piece, start + len(piece)
        return stored

    def is_as_published(self) -> bool:
        """Whether its files have still what they had."""
        self.look()
        return self._stored(self.start, self.end) == self.data

    def read(self, start: int, end: int) -> bytes:
        """The bytes of a part of it."""
        assert self.start <= start <= end <= self.end
        return bytes(self.data[start - self.start : end - self.start])

    def expire(self, start: int) -> None:
        """Have nothing before a segment's beginning any more."""
        log_begin.note(self.root, start)
        waiting.publish(self.counters.min_physical_offset, start)
        for base in self.files.base_offsets():
            if base < start:
                self.files.remove(base)
        self.look()

    def boundary(self, within: int | None = None) -> int:
        """The end of the last record that is whole up to there."""
        self.look()
        end = self.start
        for at, size, _magic in heads(self.data):
            if within is not None and self.start + at + size > within:
                break
            end = self.start + at + size
        return end

    def dispatch(self) -> None:
        """Say where a record begins, as the dispatcher does."""
        waiting.publish(self.counters.reput_from_offset, self.boundary())

    def lose_power(self, rng: random.Random, *, is_slave: bool) -> None:
        """Any of the pages that were written since they came to the disk may be lost; then it is recovered."""
        kept = rng.choice(
            (
                lambda _page: False,
                lambda _page: True,
                lambda _page: rng.random() < 0.5,
                partial(gt, rng.randint(self.flushed, self.end)),
            )
        )
        for base in self.files.base_offsets():
            self._disks.lose(self.files.path_of(base), base, kept)
        self._disks.lose(self.directory.mark, 0, lambda _page: rng.random() < 0.5)
        self.recover(is_slave=is_slave, power_cut=True)


class Disks:
    """The disks of a play: directories in memory, removed when it is over. They know what came to them of a file."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        self._directory = TemporaryDirectory(prefix="simulation-", dir=memory if os.access(memory, os.W_OK) else None)
        self._numbers = count()
        self._synced: dict[int, bytes] = {}  # what of a file is on its disk, by inode
        self._calls = {name: getattr(file_io, name) for name in ("sync_data", "sync_file")}
        for name in self._calls:
            setattr(file_io, name, self._sync)

    def _sync(self, fd: int) -> None:
        status = os.fstat(fd)
        self._synced[status.st_ino] = os.pread(fd, status.st_size, 0)

    def lose(self, path: Path, start: int, kept: Callable[[int], bool]) -> None:
        """A file's pages are again as they came to the disk, but for those `kept`, the first of which is `start`."""
        with path.open("r+b") as file:
            inode, data = os.fstat(file.fileno()).st_ino, file.read()
            synced = self._synced[inode]
            pages = [slice(at, at + PAGE_BYTES) for at in range(0, len(data), PAGE_BYTES)]
            lost = [page for page in pages if data[page] != synced[page] and not kept(start + page.start)]
            for page in lost:
                file.seek(page.start)
                file.write(synced[page])
            file.flush()
            self._sync(file.fileno())

    @property
    def root(self) -> Path:
        """The directory of all of them."""
        return Path(self._directory.name)

    def empty(self, counters: BrokerCounters, segment_bytes: int) -> Log:
        """Another disk, with nothing on it."""
        return Log(self.root / str(next(self._numbers)), counters, segment_bytes, self)

    def remove(self, log: Log) -> None:
        """A disk is gone for good."""
        shutil.rmtree(log.root)

    def close(self) -> None:
        """Remove all of them."""
        for name, call in self._calls.items():
            setattr(file_io, name, call)
        self._directory.cleanup()
