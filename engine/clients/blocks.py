"""Records in one piece of memory that a member of a group wants: what its threads take, as messages or as columns.

Each was judged by `measure_kernel`. The memory is a mapped segment, or a copy: a broker's answer, an inner batch's
messages. It stays as long as a message or an Arrow array of it does, also that of a deleted segment.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from engine.clients.measure_kernel import INNER_BATCH, Look, Part, measure_frame
from ipc.arrays import Bytes, Words
from store.errors import CorruptRecord
from store.message.inner_batch import records_in
from store.message.properties import java_hash
from store.message.record import FIXED_BYTES, Message, decode
from store.message.walk_kernel import ALL_TAGS, Tags

COPIED = UNKNOWN = -1
_new, _set = object.__new__, object.__setattr__


class Chosen(NamedTuple):
    """The tags that are wanted, and their hashes, ascending."""

    tags: Tags
    codes: Words


def chosen(tags: frozenset[str] | None) -> Chosen:
    """Return what a reader compares messages with that wants these tags; None: any."""
    codes = np.array(sorted({java_hash(tag) for tag in tags or ()}), np.int64)
    if tags is None:
        return Chosen(ALL_TAGS, codes)
    names = [tag.encode("utf-8", "replace") for tag in sorted(tags)]
    return Chosen(Tags(np.frombuffer(b"".join(names) or b"-", np.uint8), np.cumsum([0, *map(len, names)])), codes)


class Origin(NamedTuple):
    """Memory with a broker's records, read-only. `base_offset` is that of a mapped segment, else COPIED."""

    array: Bytes
    view: memoryview
    broker: str
    path: str = ""
    base_offset: int = COPIED

    def joins(self, other: Origin) -> bool:
        """Whether a batch can have records of both."""
        return self is other or (self.base_offset == other.base_offset == COPIED and self.broker == other.broker)


class Block:
    """Some records in the order of their queue offsets, of which the first ones are taken away."""

    __slots__ = ("_at", "_bytes", "_rows", "origin", "parts")

    def __init__(self, origin: Origin, parts: Words, body_bytes: int = UNKNOWN) -> None:
        """`parts` has a row of `Part` for each record. The bodies are `body_bytes` long together."""
        self.origin, self.parts, self._at, self._bytes = origin, parts, 0, body_bytes
        self._rows: list[list[int]] = []  # the same as a list, once it is needed

    def __len__(self) -> int:
        return len(self.parts) - self._at

    @property
    def first(self) -> int:
        """The queue offset of the first record that is left."""
        return int(self.parts[self._at, Part.QUEUE_OFFSET])

    @property
    def last(self) -> int:
        """The queue offset of the last record."""
        return int(self.parts[-1, Part.QUEUE_OFFSET])

    @property
    def body_bytes(self) -> int:
        """Return how long the bodies were together when this was asked first."""
        if self._bytes == UNKNOWN:
            left = self.parts[self._at :]
            self._bytes = int(left[:, Part.BODY_END].sum() - left[:, Part.BODY_AT].sum())
        return self._bytes

    def skip_below(self, offset: int) -> None:
        """Take away what lies before a queue offset."""
        if len(self) and self.first < offset:
            self._bytes = UNKNOWN
            self._at = int(np.searchsorted(self.parts[:, Part.QUEUE_OFFSET], offset))

    def take(self, most: int) -> list[MappedMessage]:
        """Take the first records away, as messages."""
        if not self._rows:
            self._rows = self.parts.tolist()
        begin, self._at = self._at, min(self._at + most, len(self.parts))
        return [mapped_message(self.origin, row) for row in self._rows[begin : self._at]]

    def take_block(self, most: int) -> Block:
        """Take the first records away, as a block of their own."""
        begin, self._at = self._at, min(self._at + most, len(self.parts))
        is_whole = self._at - begin == len(self.parts)
        return Block(self.origin, self.parts[begin : self._at], self._bytes if is_whole else UNKNOWN)


class MappedMessage(Message):
    """A message whose body is a view into its block's memory. Its record is decoded when more of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        """Decode the record, which was judged before, at the first field that is not here yet."""
        fields = self.__dict__
        if "_row" in fields and "topic" not in fields:
            decoded = decode(fields["_origin"].view, fields["_row"][Part.POSITION], check_body_crc=False).__dict__
            for key, value in decoded.items():
                fields.setdefault(key, value)
        if name not in fields:
            raise AttributeError(name)
        return fields[name]

    def block(self) -> Block:
        """Return the block of this message alone."""
        fields = self.__dict__
        return Block(fields["_origin"], np.array([fields["_row"]], np.int64))


def mapped_message(origin: Origin, row: list[int]) -> MappedMessage:
    """The message with this row of `Part`."""
    queue_offset, _, body_at, body_end, sys_flag = row
    message = _new(MappedMessage)
    fields = {
        "queue_offset": queue_offset, "sys_flag": sys_flag, "body": origin.view[body_at:body_end],
        "_origin": origin, "_row": row,
    }  # fmt: skip
    _set(message, "__dict__", fields)
    return message


class Piece(NamedTuple):
    """A part of a block: an inner batch, or records that are messages."""

    block: Block
    is_batch: bool


def blocks_of(frame: bytes | memoryview, tags: Tags, least: int, broker: str) -> list[Block]:
    """The messages in a broker's answer with some tags, from a queue offset on.

    Raises CorruptRecord, and MalformedData for an inner batch that is none.
    """
    blocks: list[Block] = []
    for piece in _measured(frame, tags, least, broker):
        for block in opened(piece, tags, least) if piece.is_batch else [piece.block]:
            block.skip_below(least)
            if len(block):
                blocks.append(block)
                least = block.last + 1
    return blocks


def _measured(frame: bytes | memoryview, tags: Tags, least: int, broker: str) -> list[Piece]:
    view = memoryview(frame).toreadonly()
    array, look = np.frombuffer(view, np.uint8), np.zeros(len(Look), np.int64)
    parts = np.empty((len(view) // FIXED_BYTES, len(Part)), np.int64)
    look[Look.LEAST] = least
    measure_frame(array, tags, look, parts)
    if look[Look.IS_CORRUPT]:
        decode(view, int(look[Look.NEXT]))
        raise CorruptRecord("", int(look[Look.NEXT]), "its lengths do not add up")
    return pieces_of(Origin(array, view, broker), parts, look)


def pieces_of(origin: Origin, parts: Words, look: Words) -> list[Piece]:
    """The rows that a look made, each inner batch alone."""
    rows = parts[: look[Look.PARTS]].copy()
    if not look[Look.BATCHES]:
        return [Piece(Block(origin, rows, int(look[Look.BODY_BYTES])), is_batch=False)] if len(rows) else []
    pieces, done = [], 0
    for row in np.flatnonzero(rows[:, Part.SYS_FLAG] & INNER_BATCH).tolist():
        pieces += [Piece(Block(origin, rows[done:row]), is_batch=False)] if row > done else []
        pieces.append(Piece(Block(origin, rows[row : row + 1]), is_batch=True))
        done = row + 1
    return [*pieces, Piece(Block(origin, rows[done:]), is_batch=False)] if done < len(rows) else pieces


def opened(piece: Piece, tags: Tags, least: int) -> list[Block]:
    """The messages of an inner batch with some tags, from a queue offset on. Raises MalformedData."""
    origin, position = piece.block.origin, int(piece.block.parts[0, Part.POSITION])
    frame = b"".join(records_in(origin.view, position, decode(origin.view, position, check_body_crc=False)))
    return [inside.block for inside in _measured(frame, tags, least, origin.broker)]
