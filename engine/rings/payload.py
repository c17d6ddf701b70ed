"""Payloads of records that only the writer can finish, as producers put them into a ring.

A payload in the ring is big-endian words, then the bytes of all pieces:
flags, step, records, where the properties' length lies, most bytes allowed, number of others (o), number of parts (p) |
slots of the others (o; -1: shown as nothing) | parts (p): the length of a piece, or a `store.put.draft.Hole`
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from store.put.draft import Draft

COMPOSED = 1 << 31  # marks a descriptor's slot: the writer makes its records, it does not copy them

FLAGS, STEP, RECORDS, PROPERTIES_AT, BYTES_MAX, OTHERS, PARTS, HEAD_WORDS = 0, 1, 2, 3, 4, 5, 6, 7
IS_COUNTED, HAS_CRC, OTHERS_COUNT, OTHERS_REPEAT = 1, 2, 4, 8


def payload_of(draft: Draft, slot_of: Callable[[tuple[str, int]], int]) -> bytes:
    """What goes into the ring for a draft that is not plain; `slot_of` a queue that it names."""
    flags = IS_COUNTED * draft.is_counted | HAS_CRC * draft.has_crc
    flags |= OTHERS_COUNT * draft.others_count | OTHERS_REPEAT * draft.others_repeat
    others = [-1 if other is None else slot_of(other) for other in draft.others]
    parts = [len(draft.pieces[0])]
    for hole, piece in zip(draft.holes, draft.pieces[1:], strict=True):
        parts += [int(hole), len(piece)]
    head = (flags, draft.step, draft.records, draft.properties_at, draft.record_bytes_max, len(others), len(parts))
    words = (*head, *others, *parts)
    return struct.pack(f">{len(words)}q", *words) + b"".join(draft.pieces)
