"""Messages from one process to another through shared memory: one writer, one reader, no locks; either may be killed.

Positions only grow; a place is position % the ring's bytes. A message lies in pieces of at most PIECE_BYTES, each with
a head of 8 bytes (length, flags) and padded to 8, wrapped round the end where it comes to lie there. A piece counts
once the tail has passed it, so a killed writer leaves none that is half written. A reader moves the head once a whole
message is *handled*, where that is one piece: a killed reader's successor gets it again. Of a longer one pieces go as
they are taken, since it may be larger than the ring; the rest of one whose writer or reader died on the way is dropped.

Region: line 0 (writer) word 0 tail | line 1 (reader) word 0 head | data
A process that waits for a message or for room is woken by other means: this module sleeps nowhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

from ipc.compiled import atomics
from ipc.region import Region

REGION_KIND, LAYOUT = "bytes", 1
HEAD_BYTES, FLAG_BITS = 8, 32
PIECE_BYTES = 256 * 1024
DATA_AT = 16  # words


class RingWord(IntEnum):
    """The words before the data, each in a cache line of its own."""

    TAIL = 0
    HEAD = 8


class PieceFlag(IntEnum):
    """The bits of a piece's flags."""

    FIRST = 1
    LAST = 2


def create(path: Path, data_bytes: int) -> None:
    """Make the region; `data_bytes` is a multiple of 8, some pieces long at least. Raises RegionNoSpace."""
    Region.create(path, DATA_AT * 8 + data_bytes, kind=REGION_KIND, layout=LAYOUT).close()


class _End:
    """The mapped ring, which reader and writer share."""

    def __init__(self, path: Path) -> None:
        self._region = Region.attach(path, kind=REGION_KIND, layout=LAYOUT, writable=True)
        self._words = self._region.words
        self._data = memoryview(self._region.bytes[DATA_AT * 8 :])  # type: ignore[arg-type]
        self._size = len(self._data)
        self._heads = self._words[DATA_AT:]

    def close(self) -> None:
        """Unmap the ring; it cannot be used afterwards."""
        self._words = self._heads = self._words[:0].copy()
        self._data.release()
        self._region.close()


class RingWriter(_End):
    """The writer's end. What finds no room is kept, in order, until `flush`; `kept_bytes` says how much."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._kept: deque[tuple[memoryview, int]] = deque()  # pieces with their flags
        self.kept_bytes = self._kept_room = 0

    @property
    def end(self) -> int:
        """The position behind all that was put, what is kept counted."""
        return int(self._words[RingWord.TAIL]) + self._kept_room

    @property
    def taken(self) -> int:
        """Return the position up to which the reader has handled the ring."""
        return int(self._words[RingWord.HEAD])

    def put(self, message: bytes) -> None:
        """Add a message; it goes behind those that are kept for want of room."""
        view, at = memoryview(message), 0
        while True:
            piece = view[at : at + PIECE_BYTES]
            flags = PieceFlag.FIRST * (at == 0) | PieceFlag.LAST * (at + PIECE_BYTES >= len(view))
            if self._kept or not self._write(piece, flags):
                self._kept.append((piece, flags))
                self.kept_bytes += len(piece)
                self._kept_room += _room_of(piece)
            at += PIECE_BYTES
            if at >= len(view):
                return

    def flush(self) -> bool:
        """Write what was kept, as far as there is room; whether nothing is kept any more."""
        while self._kept:
            piece, flags = self._kept[0]
            if not self._write(piece, flags):
                return False
            self._kept.popleft()
            self.kept_bytes -= len(piece)
            self._kept_room -= _room_of(piece)
        return True

    def _write(self, piece: memoryview, flags: int) -> bool:
        tail, taken = int(self._words[RingWord.TAIL]), int(self._words[RingWord.HEAD])
        length = _room_of(piece)
        if tail + length - taken > self._size:
            return False
        at = tail % self._size
        self._heads[at // 8] = len(piece) << FLAG_BITS | flags
        self._copy((at + HEAD_BYTES) % self._size, piece)
        # The tail last: of a writer killed before this the reader sees nothing.
        atomics.publish(self._words, int(RingWord.TAIL), tail + length)
        return True

    def _copy(self, at: int, piece: memoryview) -> None:
        first = min(len(piece), self._size - at)
        self._data[at : at + first] = piece[:first]
        self._data[: len(piece) - first] = piece[first:]


def _room_of(piece: memoryview) -> int:
    return HEAD_BYTES + -(-len(piece) // 8) * 8


class RingReader(_End):
    """The reader's end of a ring."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._pieces: list[bytes] = []

    @property
    def has_message(self) -> bool:
        """Whether anything lies in the ring."""
        return bool(self._words[RingWord.TAIL] != self._words[RingWord.HEAD])

    @property
    def position(self) -> int:
        """Return how far the ring was read: the writer has room once that has moved."""
        return int(self._words[RingWord.HEAD])

    def messages(self, most: int) -> Iterator[bytes]:
        """Yield up to `most` messages; each counts as handled when the next one is asked for."""
        for _ in range(most):
            head = int(self._words[RingWord.HEAD])
            while head != int(self._words[RingWord.TAIL]):
                at = head % self._size
                length, flags = divmod(int(self._heads[at // 8]), 1 << FLAG_BITS)
                piece = self._piece((at + HEAD_BYTES) % self._size, length)
                head += HEAD_BYTES + -(-length // 8) * 8
                if flags == PieceFlag.FIRST | PieceFlag.LAST:
                    self._pieces.clear()
                    yield piece
                    atomics.publish(self._words, int(RingWord.HEAD), head)
                    break
                atomics.publish(self._words, int(RingWord.HEAD), head)
                if (message := self._joined(piece, flags)) is not None:
                    yield message
                    break
            else:
                return

    def _piece(self, at: int, length: int) -> bytes:
        first = min(length, self._size - at)
        return bytes(self._data[at : at + first]) + bytes(self._data[: length - first])

    def _joined(self, piece: bytes, flags: int) -> bytes | None:
        """The message that ends with this piece; None while there is more to come, or its beginning is lost."""
        if flags & PieceFlag.FIRST:
            self._pieces = [piece]
            return None
        if not self._pieces:
            return None
        self._pieces.append(piece)
        if not flags & PieceFlag.LAST:
            return None
        message, self._pieces = b"".join(self._pieces), []
        return message
