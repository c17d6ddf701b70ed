"""A unit of a consume queue as compiled code has it: a row of words, and a tags code that may be an address."""

from __future__ import annotations

from enum import IntEnum

LAST_ADDRESS = -(1 << 31) - 1  # tags codes are 32 bits: up to here one is the address of a unit of ConsumeQueueExt


class Unit(IntEnum):
    """Columns of a unit's row."""

    PHYSICAL_OFFSET = 0
    SIZE = 1
    TAGS_CODE = 2
    QUEUE_OFFSET = 3  # of its first message
    MESSAGES = 4
