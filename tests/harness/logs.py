"""A small commit log made record by record, as a writer would have left it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles
from store.message.properties import format as format_properties
from store.message.record import BLANK_BYTES, blank, encode

SEGMENT_BYTES = 4096
QUEUE_FILE_BYTES = 200  # ten entries
FIRST_STORE_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Placed:
    """A record in the log."""

    offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + self.size


@dataclass
class SmallLog:
    """Appends records to a store's segments, rolling with blank records."""

    root: Path
    segment_bytes: int = SEGMENT_BYTES
    end: int = 0
    records: list[Placed] = field(default_factory=list)
    next_offsets: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory = StoreDirectory(self.root)
        self.directory.create()
        self.files = SegmentFiles(self.directory.commitlog, self.segment_bytes)

    def append(
        self,
        topic: str = "topic",
        body: bytes = b"body",
        *,
        queue_id: int = 0,
        queue_offset: int | None = None,
        properties: dict[str, str] | bytes | None = None,
        **fields: Any,
    ) -> Placed:
        """One more record; its queue offset is the queue's next unless given. Properties may be given as bytes."""
        key = topic, queue_id
        if queue_offset is None:
            queue_offset = self.next_offsets.get(key, 0)
        self.next_offsets[key] = queue_offset + 1
        fields.setdefault("store_timestamp_ms", FIRST_STORE_MS + len(self.records))
        made: dict[str, Any] = {
            "topic": topic,
            "body": body,
            "queue_id": queue_id,
            "queue_offset": queue_offset,
            "properties": properties if isinstance(properties, bytes) else format_properties(properties or {}),
            **fields,
        }
        size = len(encode(**made))
        rest = self.segment_bytes - self.end % self.segment_bytes
        if size + BLANK_BYTES > rest:
            self.write(self.end, blank(rest))
            self.end += rest
        placed = Placed(self.end, size, topic, queue_id, queue_offset)
        self.write(self.end, encode(**made, physical_offset=self.end))
        self.end += size
        self.records.append(placed)
        return placed

    def append_raw(self, record: bytes) -> int:
        """Bytes that the codec would not make, where the log ends; their offset."""
        offset = self.end
        self.write(offset, record)
        self.end += len(record)
        return offset

    def fill(self, count: int, topics: int = 2, queues: int = 2) -> None:
        """Records of several queues, in turn."""
        for number in range(count):
            topic = f"topic{number % topics}"
            self.append(
                topic, b"body %d" % number, queue_id=number // topics % queues, properties={"TAGS": f"t{number}"}
            )

    def write(self, offset: int, data: bytes) -> None:
        """Bytes at a log offset, whatever was there."""
        base = self.files.base_of(offset)
        self.files.reserve(base)
        with open(self.files.path_of(base), "r+b") as file:
            file.seek(offset - base)
            file.write(data)

    def read(self, offset: int, count: int) -> bytes:
        """Bytes at a log offset."""
        base = self.files.base_of(offset)
        with open(self.files.path_of(base), "rb") as file:
            file.seek(offset - base)
            return file.read(count)

    def flip(self, offset: int) -> None:
        """One bit of rot."""
        self.write(offset, bytes([self.read(offset, 1)[0] ^ 0x10]))


def contents(root: Path) -> dict[str, bytes]:
    """Every file below a directory, by relative path; `lock` left out."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "lock" and not os.path.islink(path)
    }
