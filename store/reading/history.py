"""How much history a log holds: from which offset on, and when its first message was stored."""

from __future__ import annotations

from dataclasses import dataclass

from store.errors import StoreError
from store.files.segment_files import SegmentFiles
from store.message.record import BLANK_BYTES, MAGIC_AT, MAGIC_V1, MAGIC_V2, SYS_FLAG_AT, store_timestamp_at

TIMESTAMP_BYTES = 8


@dataclass(frozen=True)
class History:
    """What lies below `from_offset` expired, or never came here; `from_ms` is None where no message is there."""

    from_offset: int
    from_ms: int | None


def held(files: SegmentFiles, min_offset: int, max_offset: int) -> History:
    """The history of a log with these ends."""
    if max_offset <= min_offset:
        return History(min_offset, None)
    try:
        return History(min_offset, stored_ms(files, min_offset))
    except (OSError, StoreError):  # it expires just now, or is no segment: others say so
        return History(min_offset, None)


def stored_ms(files: SegmentFiles, offset: int) -> int | None:
    """When the record at that offset was stored; None where none begins. Raises OSError, SegmentSizeMismatch."""
    base = files.base_of(offset)
    with files.open(base) as segment:
        at = offset - base
        head = bytes(segment.view[at : at + SYS_FLAG_AT + 4])
        if len(head) < max(BLANK_BYTES, SYS_FLAG_AT + 4):
            return None
        if int.from_bytes(head[MAGIC_AT : MAGIC_AT + 4]) not in (MAGIC_V1, MAGIC_V2):
            return None
        stored_at = at + store_timestamp_at(int.from_bytes(head[SYS_FLAG_AT : SYS_FLAG_AT + 4]))
        return int.from_bytes(segment.view[stored_at : stored_at + TIMESTAMP_BYTES], signed=True)
