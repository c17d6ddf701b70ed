"""A commit log's writer in plain Python, byte for byte after RocketMQ's: what the compiled one is compared with.

It takes drafts, the store time and nothing else; queue offsets and places are its own counting.
"""

from __future__ import annotations

import struct
import zlib
from collections import defaultdict

from store.message.properties import CRC_PROPERTY_BYTES
from store.message.record import (
    BLANK_BYTES,
    CRC_MASK,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    blank,
    store_timestamp_at,
)
from store.put.draft import Draft, Hole


class ReferenceLog:
    """A log in memory: `bytes` from offset 0 on, blank records filled with zeros."""

    def __init__(self, segment_bytes: int) -> None:
        self.segment_bytes, self.data = segment_bytes, bytearray()
        self.next_offsets: defaultdict[tuple[str, int], int] = defaultdict(int)

    def append(self, draft: Draft, store_timestamp_ms: int) -> bytes:
        """Put the records of a draft behind the end; their bytes."""
        queue = draft.topic, draft.queue_id
        offset = self.next_offsets[queue] if draft.is_counted else 0
        others = [None if other is None else self.next_offsets[other] for other in draft.others]
        made = bytearray(self._composed(draft, offset, others))
        room = self.segment_bytes - len(self.data) % self.segment_bytes
        if len(made) + BLANK_BYTES > room:
            self.data += blank(room).ljust(room, b"\0")
        at = 0
        for number in range(draft.records):
            (size,) = struct.unpack_from(">i", made, at)
            (sys_flag,) = struct.unpack_from(">i", made, at + SYS_FLAG_AT)
            struct.pack_into(">q", made, at + QUEUE_OFFSET_AT, offset + number)
            struct.pack_into(">q", made, at + PHYSICAL_OFFSET_AT, len(self.data) + at)
            struct.pack_into(">q", made, at + store_timestamp_at(sys_flag), store_timestamp_ms)
            if draft.has_crc:
                crc_at = at + size - CRC_PROPERTY_BYTES
                digits = str(zlib.crc32(made[at:crc_at]) & CRC_MASK)[::-1].ljust(10, "0")
                made[crc_at : at + size] = f"__CRC32#\x01{digits}\x02".encode()
            at += size
        assert at == len(made)
        self._count(draft, queue, others)
        self.data += made
        return bytes(made)

    def _composed(self, draft: Draft, offset: int, others: list[int | None]) -> bytes:
        texts = {
            Hole.OWN_OFFSET: str(offset),
            Hole.OTHER_OFFSETS: ",".join("" if other is None else str(other) for other in others),
        }
        made = bytearray(draft.pieces[0])
        for hole, piece in zip(draft.holes, draft.pieces[1:], strict=True):
            made += texts[hole].encode() + piece
        if draft.holes:
            struct.pack_into(">i", made, 0, len(made))
            struct.pack_into(">h", made, draft.properties_at, len(made) - draft.properties_at - 2)
        return bytes(made)

    def _count(self, draft: Draft, queue: tuple[str, int], others: list[int | None]) -> None:
        if draft.is_counted:
            self.next_offsets[queue] += draft.step * draft.records
        for other, offset in zip(draft.others, others, strict=True):
            if other is not None and offset is not None and draft.others_count:
                self.next_offsets[other] = self.next_offsets[other] + 1 if draft.others_repeat else offset + 1
