"""RocketMQ's files read once more, by another reader than the product's: a test of bytes trusts nobody.

spec: store-formats, sections 1, 4, 10 to 13
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

MAGIC_V1, MAGIC_V2, MAGIC_BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
HEAD = struct.Struct(">iIiiiqqiq")
HEAD_NAMES = (
    "total_size", "magic", "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag",
    "born_timestamp",
)  # fmt: skip
BORN_TIMESTAMP_AT, BORN_HOST_AT = 40, 48
BORN_V6, STORE_V6 = 0x10, 0x20
QUEUE_ENTRY = struct.Struct(">qiq")
BATCH_ENTRY = struct.Struct(">qiqqqhi4s")
EXT_UNIT = struct.Struct(">hqqh")
INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_ENTRY = struct.Struct(">iqii")
INDEX_HEADER_NAMES = ("begin_timestamp", "end_timestamp", "begin_offset", "end_offset", "slot_count", "index_count")
PROPERTY_CRC_BYTES = 20


class Record(NamedTuple):
    """What a record's own first fields say; `fields` are all of them, where the record is long enough."""

    offset: int
    size: int
    magic: int
    store_timestamp_at: int
    store_timestamp: int
    topic: str

    @property
    def blank(self) -> bool:
        """Whether it only fills its file."""
        return self.magic == MAGIC_BLANK


def record_at(data: bytes | bytearray, position: int, base: int) -> Record | None:
    """The record there, None at the end of the log (no magic, or a size that cannot be)."""
    if position + 8 > len(data):
        return None
    size, magic = struct.unpack_from(">iI", data, position)
    if magic == MAGIC_BLANK:
        return Record(base + position, len(data) - position, magic, 0, 0, "")
    if magic not in (MAGIC_V1, MAGIC_V2) or not 0 < size <= len(data) - position:
        return None
    fields = fields_of(bytes(data[position : position + size]))
    at = fields["store_timestamp_at"]
    return Record(base + position, size, magic, at, fields["store_timestamp"], fields["topic"])


def fields_of(record: bytes) -> dict[str, Any]:
    """All fields of one record by name, in their order."""
    fields: dict[str, Any] = dict(zip(HEAD_NAMES, HEAD.unpack_from(record), strict=True))
    at = BORN_HOST_AT
    born = 20 if fields["sys_flag"] & BORN_V6 else 8
    fields["born_host"] = record[at : at + born].hex()
    at += born
    fields["store_timestamp_at"] = at
    (fields["store_timestamp"],) = struct.unpack_from(">q", record, at)
    at += 8
    stored = 20 if fields["sys_flag"] & STORE_V6 else 8
    fields["store_host"] = record[at : at + stored].hex()
    at += stored
    fields["reconsume_times"], fields["prepared_offset"], length = struct.unpack_from(">iqi", record, at)
    at += 16
    fields["body"] = record[at : at + length]
    at += length
    width = 2 if fields["magic"] == MAGIC_V2 else 1
    topic_length = int.from_bytes(record[at : at + width], "big")
    at += width
    fields["topic"] = record[at : at + topic_length].decode(errors="replace")
    at += topic_length + 2
    fields["properties"] = record[at:]
    return fields


def ends_with_property_crc(record: bytes) -> bool:
    """Whether the record closes with `__CRC32#`."""
    return record[-PROPERTY_CRC_BYTES:].startswith(b"__CRC32#\x01")


class ExtUnit(NamedTuple):
    """One unit of a consume queue's extension, and where it lies."""

    at: int
    size: int
    tags_code: int
    store_time: int


def ext_units(data: bytes, position: int = 0) -> Iterator[ExtUnit]:
    """The units from there on, up to the first that has no size."""
    while position + EXT_UNIT.size <= len(data):
        size, tags_code, store_time, _bits = EXT_UNIT.unpack_from(data, position)
        if size < EXT_UNIT.size:
            return
        yield ExtUnit(position, size, tags_code, store_time)
        position += size


def files_below(directory: Path) -> dict[str, Path]:
    """Every file below a directory, by its path from there."""
    return {str(path.relative_to(directory)): path for path in sorted(directory.rglob("*")) if path.is_file()}
