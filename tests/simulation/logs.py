"""Logs in memory, made of real heads of records, and the histories that they must be windows of.

A history is all that one master ever wrote, from offset 0 on, with what it had before; it forks where a log is cut and
written on. No two records are equal: whose a byte is, is seen.
"""

from __future__ import annotations

import random
from struct import Struct

from engine.protocol.ha.opening import NO_TAIL, Tail
from store.message.record import BLANK_BYTES, BLANK_MAGIC, FIXED_BYTES, MAGIC_V1, MAGIC_V2

HEAD = Struct(">iI")
LOWEST_START = 2  # who asks from 0 or 1 gets something else
SIZES = (FIXED_BYTES, 96, 128, 128, 200, 333, 700)  # few, so that histories come to equal offsets


class History:
    """What masters wrote, one after the other, each going on where the one before ended or was cut."""

    def __init__(self, name: str, before: bytes = b"") -> None:
        self.name = name
        self.data = bytearray(before)

    def append(self, rng: random.Random, segment_bytes: int) -> tuple[int, int]:
        """One record, behind a blank one where the segment has no room; where it begins and ends."""
        size, end = rng.choice(SIZES), len(self.data)
        room = segment_bytes - end % segment_bytes
        if size + BLANK_BYTES > room:
            self.data += HEAD.pack(room, BLANK_MAGIC) + rng.randbytes(room - BLANK_BYTES)
        start = len(self.data)
        self.data += HEAD.pack(size, rng.choice((MAGIC_V1, MAGIC_V2))) + rng.randbytes(size - HEAD.size)
        return start, len(self.data)


class Log:
    """The log of one node: `data` from `start` on, published up to `end`, on the disk up to `flushed`."""

    def __init__(self) -> None:
        self.start = self.end = self.flushed = 0
        self.data = bytearray()
        self.is_diverged = False  # noted beside it, until an operator acts

    def write(self, at: int, data: bytes | bytearray | memoryview) -> None:
        """Put bytes where they belong, not published yet; an empty log begins where its first bytes do.

        A log is empty while nothing of it is published: a part of a record that an earlier receiver left does not
        count, and its segment goes when the next master begins further on, as the allocator has it.
        """
        if self.end == 0 and (not self.data or at > len(self.data)):
            self.data.clear()
            self.start = self.end = self.flushed = at
        assert self.end <= at <= self.start + len(self.data), f"bytes for {at}, the log ends at {self.end}"
        del self.data[at - self.start :]
        self.data += data

    def publish(self, end: int) -> None:
        """What lies below never changes."""
        assert self.end <= end <= self.start + len(self.data)
        self.end = end

    def read(self, start: int, end: int) -> bytes:
        """The bytes of a part of it."""
        assert self.start <= start <= end <= self.end
        return bytes(self.data[start - self.start : end - self.start])

    def tail(self, overlap_bytes: int, segment_bytes: int) -> Tail:
        """The end of it, to be compared, as store.recovery.overlap takes it from files."""
        if not self.end:
            return NO_TAIL
        start, base = max(self.start, self.end - overlap_bytes), (self.end - 1) - (self.end - 1) % segment_bytes
        if start < base and self.end - base >= FIXED_BYTES:
            start = base
        start = max(start, LOWEST_START)
        return Tail(start, self.read(start, self.end)) if start < self.end else NO_TAIL

    def cut(self, end: int) -> None:
        """Have nothing behind `end` any more."""
        assert self.start <= end <= self.end
        del self.data[end - self.start :]
        self.end = end
        self.flushed = min(self.flushed, end)

    def expire(self, segment_bytes: int, start: int) -> None:
        """Have nothing before a segment's beginning any more."""
        assert start % segment_bytes == 0 and self.start <= start <= self.end
        del self.data[: start - self.start]
        self.start = start

    def last_record(self, within: int | None = None) -> tuple[int, int]:
        """Where the last record begins that begins before `within` (the end), and how many bytes it has in all."""
        within = self.end if within is None else within
        at = last = self.start
        size = 0
        while at < within:
            last = at
            if self.end - at < HEAD.size:
                return at, HEAD.size  # its size is not known yet
            size = HEAD.unpack_from(self.data, at - self.start)[0]
            at += size
        return last, size

    def boundary(self, within: int | None = None) -> int:
        """The end of the last record that is whole up to there: what a recovery keeps."""
        within = self.end if within is None else within
        last, size = self.last_record(within)
        return last + size if last + size <= within else last

    def missing(self) -> int | None:
        """How many bytes are missing of the last record; None where not even its head is there."""
        last, size = self.last_record()
        if 0 < self.end - last < HEAD.size:
            return None
        return max(last + size - self.end, 0)

    def lose_power(self, rng: random.Random) -> int:
        """Of what was not flushed any number of pages is there afterwards; a recovery keeps whole records. The end."""
        kept = rng.choice((self.flushed, self.end, rng.randint(self.flushed, self.end)))
        self.cut(self.boundary(kept))
        self.flushed = self.end
        return self.end
