"""Payloads of records that only the writer can finish, as producers put them into a ring.

A payload in the ring is big-endian words, then the bytes of all pieces:
flags, step, records, where the properties' length lies, most bytes allowed, number of others (o), number of parts (p) |
slots of the others (o; -1: shown as nothing) | parts (p): the length of a piece, or a `store.put.draft.Hole`
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

from store.put.draft import Draft

COMPOSED = 1 << 31  # marks a descriptor's slot: the writer makes its records, it does not copy them


class PayloadWord(IntEnum):
    """The words that each payload begins with."""

    FLAGS = 0  # PayloadFlag
    STEP = 1
    RECORDS = 2
    PROPERTIES_AT = 3
    BYTES_MAX = 4
    OTHERS = 5
    PARTS = 6


HEAD_WORDS = len(PayloadWord)


class PayloadFlag(IntEnum):
    """The bits of a payload's flags."""

    IS_COUNTED = 1
    HAS_CRC = 2
    OTHERS_COUNT = 4
    OTHERS_REPEAT = 8


def payload_of(draft: Draft, slot_of: Callable[[tuple[str, int]], int]) -> bytes:
    """Return what goes into the ring for a draft that is not plain; `slot_of` a queue that it names."""
    flags = PayloadFlag.IS_COUNTED * draft.is_counted | PayloadFlag.HAS_CRC * draft.has_crc
    flags |= PayloadFlag.OTHERS_COUNT * draft.others_count | PayloadFlag.OTHERS_REPEAT * draft.others_repeat
    others = [-1 if other is None else slot_of(other) for other in draft.others]
    parts = [len(draft.pieces[0])]
    for hole, piece in zip(draft.holes, draft.pieces[1:], strict=True):
        parts += [int(hole), len(piece)]
    # in the order of PayloadWord
    head = (flags, draft.step, draft.records, draft.properties_at, draft.record_bytes_max, len(others), len(parts))
    words = (*head, *others, *parts)
    return struct.pack(f">{len(words)}q", *words) + b"".join(draft.pieces)
