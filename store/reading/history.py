"""How much history a log holds: from which offset on, and when its first message was stored."""

from __future__ import annotations

import os
from dataclasses import dataclass

from store.errors import StoreError
from store.files.segment_files import SegmentFiles
from store.message.record import (
    BLANK_BYTES,
    FAMILIES,
    HOST_MASK,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    SYS_FLAG_AT,
    store_timestamp_at,
)

TIMESTAMP_BYTES = 8
STORED_AT = {bits: store_timestamp_at(bits) for bits in FAMILIES}
HEAD_BYTES = max(STORED_AT.values()) + TIMESTAMP_BYTES  # of a record, to tell when it was stored
HEAD_LEAST_BYTES = max(BLANK_BYTES, SYS_FLAG_AT + 4)
MAGICS = frozenset(magic.to_bytes(4) for magic in (MAGIC_V1, MAGIC_V2))


@dataclass(frozen=True)
class History:
    """The log's lower end: what lies below `from_offset` expired, or never arrived; `from_ms` None: no message."""

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
    """Return when the record at an offset was stored, in ms; None where no record begins there.

    Raises OSError, SegmentRemoved, SegmentSizeMismatch.
    """
    base = files.base_of(offset)
    fd = files.descriptor(base)
    try:
        return stored_ms_at(fd, offset - base)
    finally:
        os.close(fd)


def stored_ms_at(fd: int, position: int) -> int | None:
    """Return the time like `stored_ms`, of a record in an open segment, which is read, not mapped."""
    head = os.pread(fd, HEAD_BYTES, position)
    if len(head) < HEAD_LEAST_BYTES or head[MAGIC_AT : MAGIC_AT + 4] not in MAGICS:
        return None
    at = STORED_AT[int.from_bytes(head[SYS_FLAG_AT : SYS_FLAG_AT + 4]) & HOST_MASK]
    return int.from_bytes(head[at : at + TIMESTAMP_BYTES], signed=True)
