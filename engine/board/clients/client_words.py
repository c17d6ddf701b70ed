"""Words and rows of `engine.board.clients.client_table`, by their names."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class TableWord(IntEnum):
    """The words before the rows."""

    FILLED = 0  # whether the file's offsets are here, or what came after them
    IS_OVERFULL = 1
    OFFSETS_USED = 2
    OFFSETS_RESERVED = 3
    LOCKS_USED = 4
    LOCKS_RESERVED = 5
    NAMES_USED = 6
    NAMES_RESERVED = 7
    OFFSETS_FILE = 8  # the state of consumerOffset.json as the role read it, or wrote it last; all 0: there was none
    DELAYS_FILE = 11  # of delayOffset.json
    ROWS = 14  # the first row's


class LockRow(IntEnum):
    """Words of a row in the table of locks."""

    UPDATED_MS = 0
    TOPIC_AND_GROUP = 1
    BROKER_AND_CLIENT = 2
    QUEUE_ID = 3
    WORDS = 4


class Rows(NamedTuple):
    """Place and size of the rows of one kind."""

    at: int  # words
    words: int
    capacity: int
    used: int  # which words say how many
    reserved: int
