"""Logs in real files, made of real records, and the histories that they must be windows of.

A history is all that one master ever wrote, from offset 0 on, with what it had before; it forks where a log is cut and
written on. No two records are equal: whose a byte is, is seen.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory

from engine.board.cursors import Board
from ipc import waiting
from store.files.directory import StoreDirectory
from store.files.pointer import COUNTERS_FILE
from store.files.segment_files import SegmentFiles
from store.message.record import BLANK_BYTES, BLANK_MAGIC, FIXED_BYTES, MAGIC_V1, MAGIC_V2, encode
from store.notes import divergence

HEAD = Struct(">iI")
TOPIC, QUEUES = "t", 4
# Few, so that histories come to equal offsets.
SIZES = (FIXED_BYTES + 2, 96, 128, 128, 200, 333, 700)


@cache
def board_of(number: int) -> Board:
    """Return a board of this process: making one takes longer than a play does with it. No file of it is left."""
    with TemporaryDirectory() as directory:
        return Board.create(Path(directory) / f"{number}.{COUNTERS_FILE}")


@cache
def _bodiless_bytes(magic: int) -> int:
    return len(encode(topic=TOPIC, body=b"", magic=magic))


class History:
    """What masters wrote, one after the other, each going on where the one before ended or was cut."""

    def __init__(self, name: str, before: bytes = b"") -> None:
        self.name = name
        self.data = bytearray(before)
        self._records = 0

    def append(self, rng: random.Random, segment_bytes: int, now_ms: int) -> tuple[int, int]:
        """One record, behind a blank one where the segment has no room; where it begins and ends."""
        size, end, magic = rng.choice(SIZES), len(self.data), rng.choice((MAGIC_V1, MAGIC_V2))
        room = segment_bytes - end % segment_bytes
        if size + BLANK_BYTES > room:
            self.data += HEAD.pack(room, BLANK_MAGIC) + rng.randbytes(room - BLANK_BYTES)
        start = len(self.data)
        self._records += 1
        self.data += encode(
            topic=TOPIC,
            body=rng.randbytes(size - _bodiless_bytes(magic)),
            queue_id=rng.randrange(QUEUES),
            queue_offset=self._records,
            physical_offset=start,
            born_timestamp_ms=rng.getrandbits(40),
            store_timestamp_ms=now_ms,
            magic=magic,
        )
        return start, len(self.data)


class Log:
    """The store of one node, and the counters of its broker: they say where the log begins and ends, and is on disk."""

    def __init__(self, root: Path, board: Board, segment_bytes: int) -> None:
        self.root, self.board = root, board
        self.directory = StoreDirectory(root)
        self.directory.create()
        self.files = SegmentFiles(self.directory.commitlog, segment_bytes)
        self.data = bytearray()  # what of it is published, from `_from` on, as it was read when it was published
        self._from = 0
        self.words = memoryview(board.counters.words)  # which is read faster than its cursors
        self._places = [word.index for word in (board.min_physical_offset, board.max_physical_offset)]
        self._flushed = board.flushed_offset.index
        self.begin()

    def begin(self) -> None:
        """Set the counters as a starting broker does, and forget what was not published."""
        start, end, board = self._from, self._from + len(self.data), self.board
        board.counters.words[:] = 0
        self._clear(end)
        bases = self.files.base_offsets()
        for cursor, value in (
            (board.min_physical_offset, start), (board.max_physical_offset, end), (board.flushed_offset, end),
            (board.allocated_offset, bases[-1] + self.files.segment_bytes if bases else 0),
            (board.recovered_offset, end), (board.segment_request_offset, end or -1),
        ):  # fmt: skip
            waiting.note(cursor, value)

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
        words = self.board.counters.words
        before = words.copy()
        yield
        words[:] = before

    @property
    def lacks_segment(self) -> bool:
        """Whether somebody waits for a segment."""
        return self.board.segment_request_offset.read() >= self.board.allocated_offset.read()

    @property
    def is_diverged(self) -> bool:
        """Whether it is noted beside it, until an operator acts, that it is another history than its master's."""
        return divergence.path_of(self.root).exists()

    def forgive(self) -> None:
        """An operator removes that note."""
        divergence.path_of(self.root).unlink(missing_ok=True)

    def flush(self) -> None:
        """Bring all of it to the disk."""
        waiting.publish(self.board.flushed_offset, self.end)

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

    def write(self, at: int, data: bytes | bytearray) -> None:
        """Put bytes where they belong and publish them, as a writer does."""
        view = memoryview(data)
        while view:
            base = self.files.base_of(at)
            if not self.files.path_of(base).exists():
                self.files.reserve(base)
                waiting.publish(self.board.allocated_offset, base + self.files.segment_bytes)
            piece = view[: base + self.files.segment_bytes - at]
            with self.files.open(base, writable=True) as segment:
                segment.view[at - base : at - base + len(piece)] = piece
            view, at = view[len(piece) :], at + len(piece)
        waiting.publish(self.board.max_physical_offset, at)
        self.look()

    def read(self, start: int, end: int) -> bytes:
        """The bytes of a part of it."""
        assert self.start <= start <= end <= self.end
        return bytes(self.data[start - self.start : end - self.start])

    def cut(self, end: int) -> None:
        """Have nothing behind `end` any more."""
        assert self.start <= end <= self.end
        self._clear(end)
        waiting.note(self.board.max_physical_offset, end)
        waiting.note(self.board.flushed_offset, min(self.flushed, end))
        self.look()

    def _clear(self, end: int) -> None:
        for base in self.files.base_offsets():
            if base >= end:
                self.files.remove(base)
            elif base + self.files.segment_bytes > end:
                with self.files.open(base, writable=True) as segment:
                    segment.array[end - base :] = 0

    def expire(self, start: int) -> None:
        """Have nothing before a segment's beginning any more."""
        waiting.publish(self.board.min_physical_offset, start)
        for base in self.files.base_offsets():
            if base < start:
                self.files.remove(base)
        self.look()

    def boundary(self, within: int | None = None) -> int:
        """The end of the last record that is whole up to there: what a recovery keeps."""
        self.look()
        within = self.end if within is None else within
        at = self.start
        while at + HEAD.size <= within:
            size = HEAD.unpack_from(self.data, at - self.start)[0]
            if at + size > within:
                break
            at += size
        return at

    def dispatch(self) -> None:
        """Say where a record begins, as the dispatcher does."""
        waiting.publish(self.board.reput_from_offset, self.boundary())

    def lose_power(self, rng: random.Random) -> int:
        """Of what was not flushed any number of pages is there afterwards; a recovery keeps whole records. The end."""
        kept = rng.choice((self.flushed, self.end, rng.randint(self.flushed, self.end)))
        self.cut(self.boundary(kept))
        self.flush()
        return self.end


class Disks:
    """The disks of a play: directories in memory, all removed when it is over."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        self._directory = TemporaryDirectory(prefix="simulation-", dir=memory if os.access(memory, os.W_OK) else None)
        self._numbers = count()

    @property
    def root(self) -> Path:
        """The directory of all of them."""
        return Path(self._directory.name)

    def empty(self, board: Board, segment_bytes: int) -> Log:
        """Another disk, with nothing on it."""
        return Log(self.root / str(next(self._numbers)), board, segment_bytes)

    def remove(self, log: Log) -> None:
        """A disk is gone for good."""
        shutil.rmtree(log.root)

    def close(self) -> None:
        """Remove all of them."""
        self._directory.cleanup()
