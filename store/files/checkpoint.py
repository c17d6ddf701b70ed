"""The checkpoint: up to which moment log and queues were on disk, in a file that RocketMQ reads and writes too.

Implements: StoreCheckpoint (spec: store-formats, section 14)
RocketMQ knows times only. Behind them, where it leaves zeros, we keep the same in bytes, so that recovery begins at the
right place and knows below which offset nothing may be missing. That part counts only as long as the times before it
are the ones we wrote: a RocketMQ that ran on the store in between makes it void.

offset  field (big-endian i64)
     0  physicMsgTimestamp     8  logicsMsgTimestamp     16  indexMsgTimestamp
    24  masterFlushedOffset   32  confirmPhyOffset       (both RocketMQ 5.x; kept as found)
  4008  magic "SLIPINDX"    4016  index_offset: the index is on disk up to this record boundary, too
  4024  index_file: the name of the file that its last entry is in, 0 without one   4032  index_count: its next entry
  4040  CRC-32 of bytes 4008 to 4039
  4048  magic "SLIPCKPT"    4056  physicMsgTimestamp again
  4064  flushed_offset: on disk, in the log and in the queues; a record boundary
  4072  queues  4080  entries in them below flushed_offset   4088  CRC-32 of bytes 4048 to 4087
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from store.errors import ForeignFile
from store.files import file_io

FILE_BYTES = 4096
TIMES = struct.Struct(">5q")
OURS = struct.Struct(">8s4q")
OURS_AT, CRC_AT = 4048, 4088
MAGIC = b"SLIPCKPT"
INDEX = struct.Struct(">8s3q")
INDEX_AT, INDEX_CRC_AT = 4008, 4040
INDEX_MAGIC = b"SLIPINDX"
MARGIN_MS = 3000  # RocketMQ's


class Checkpoint(NamedTuple):
    """Content of the checkpoint file; all zeros without a file."""

    physic_msg_timestamp_ms: int = 0
    logics_msg_timestamp_ms: int = 0
    index_msg_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0
    flushed_offset: int | None = None  # None: unknown, the file is RocketMQ's
    queues: int = 0
    entries: int = 0
    index_offset: int | None = None  # None: unknown, or no index was built; it counts beside that very flushed_offset
    index_file: int = 0
    index_count: int = 0

    @property
    def min_timestamp_ms(self) -> int:
        """Messages stored before this are on disk, and so are their queue entries."""
        return max(0, min(self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms) - MARGIN_MS)

    def as_rocketmqs(self) -> Checkpoint:
        """The same without our part: the next start counts again."""
        return self._replace(flushed_offset=None, queues=0, entries=0, index_offset=None, index_file=0, index_count=0)


def encode(checkpoint: Checkpoint) -> bytes:
    """Return the bytes of the checkpoint file."""
    content = bytearray(FILE_BYTES)
    content[: TIMES.size] = TIMES.pack(
        checkpoint.physic_msg_timestamp_ms,
        checkpoint.logics_msg_timestamp_ms,
        checkpoint.index_msg_timestamp_ms,
        checkpoint.master_flushed_offset,
        checkpoint.confirm_offset,
    )
    if checkpoint.flushed_offset is not None:
        ours = OURS.pack(
            MAGIC, checkpoint.physic_msg_timestamp_ms, checkpoint.flushed_offset, checkpoint.queues, checkpoint.entries
        )
        content[OURS_AT : OURS_AT + OURS.size] = ours
        content[CRC_AT : CRC_AT + 8] = zlib.crc32(ours).to_bytes(8, "big")
        if checkpoint.index_offset is not None:
            index = INDEX.pack(INDEX_MAGIC, checkpoint.index_offset, checkpoint.index_file, checkpoint.index_count)
            content[INDEX_AT : INDEX_AT + INDEX.size] = index
            content[INDEX_CRC_AT : INDEX_CRC_AT + 8] = zlib.crc32(index).to_bytes(8, "big")
    return bytes(content)


def decode(content: bytes) -> Checkpoint:
    """Return what a file's content says; a short one is as good as none, because recovery then looks at more."""
    if len(content) < FILE_BYTES:
        return Checkpoint()
    times = TIMES.unpack_from(content)
    checkpoint = Checkpoint(*times)
    ours = content[OURS_AT : OURS_AT + OURS.size]
    magic, physic_again, flushed_offset, queues, entries = OURS.unpack(ours)
    crc = int.from_bytes(content[CRC_AT : CRC_AT + 8], "big")
    if magic != MAGIC or physic_again != times[0] or crc != zlib.crc32(ours):
        return checkpoint
    checkpoint = checkpoint._replace(flushed_offset=flushed_offset, queues=queues, entries=entries)
    index = content[INDEX_AT : INDEX_AT + INDEX.size]
    magic, index_offset, index_file, index_count = INDEX.unpack(index)
    crc = int.from_bytes(content[INDEX_CRC_AT : INDEX_CRC_AT + 8], "big")
    if magic != INDEX_MAGIC or index_offset != flushed_offset or crc != zlib.crc32(index):
        return checkpoint
    return checkpoint._replace(index_offset=index_offset, index_file=index_file, index_count=index_count)


def sum_of_times(path: Path) -> int:
    """A CRC-32 of what RocketMQ, too, writes into that file: whether a broker of its kind changed it since."""
    try:
        with path.open("rb") as file:
            return zlib.crc32(file.read(TIMES.size))
    except (FileNotFoundError, IsADirectoryError):
        return zlib.crc32(b"")


def damage(content: bytes) -> str:
    """Return what of our own parts cannot be what we wrote, though something is there; empty when nothing is wrong."""
    for start, crc_at, name in ((OURS_AT, CRC_AT, "flushed offset"), (INDEX_AT, INDEX_CRC_AT, "index")):
        size = OURS.size if start == OURS_AT else INDEX.size
        part, crc = content[start : start + size], int.from_bytes(content[crc_at : crc_at + 8], "big")
        if (any(part) or crc) and crc != zlib.crc32(part):
            return f"the part about the {name} (byte {start}) does not have its CRC"
    return ""


def read(path: Path) -> Checkpoint:
    """The checkpoint in that file, or an empty one. Raises ForeignFile."""
    try:
        with path.open("rb") as file:
            return decode(file.read(FILE_BYTES))
    except FileNotFoundError:
        return Checkpoint()
    except IsADirectoryError as error:
        raise ForeignFile(str(path), "a directory has the checkpoint's name") from error


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint file, and sync it."""
    file_io.replace_file(path, encode(checkpoint))
