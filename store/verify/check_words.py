"""The words of the arrays that `check_kernel` works on, and why it stops."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ipc.arrays import Bytes, Words


class Queue(IntEnum):
    """Columns of a queue; MATCHED_AT: the place of its first entry in `matched`; FILES_AT: of its first file in
    `addresses`."""

    NAME_AT, NAME_BYTES, QUEUE_ID, KIND, FIRST, COUNT, FILES_AT, PER_FILE, MATCHED_AT = range(9)


class QueueKind(IntEnum):
    """ABSENT: records name it, but it has no files."""

    PLAIN, SCHEDULE, BATCH, ABSENT = range(4)


class Count(IntEnum):
    """The counts of a queue: records without an entry, those behind the queue's end, entries that are wrong."""

    MISSING, MISSING_OFFSET, BEHIND, BEHIND_OFFSET, WRONG, WRONG_ENTRY, WRONG_OFFSET, WRONG_SIZE = range(8)


class State(IntEnum):
    """Words of a check's state."""

    RECORDS, LAST_TIME, TIME_FALLS, FALL_OFFSET, CRC_BYTES, STRUCTURE_BYTES, OPEN_BYTES, FIRST_TIME = range(8)


class Event(IntEnum):
    """Columns of an event's row."""

    EVENT, POSITION, QUEUE, VALUE, TAGS_CODE, STORE_TIMESTAMP = range(6)


class EventKind(IntEnum):
    """The kinds of records that take more than the record and its entry."""

    HALF, MULTI, IN_BATCH, EXT, TAGS_TEXT = range(5)


class CheckStop(IntEnum):
    """Reasons why a check stopped."""

    LIMIT, BLANK, PARTIAL, NO_RECORD, DAMAGED, SOUND, PAUSE, NEW_QUEUE, PROPERTY_CRC, BODY_CRC = range(10)


class Part(IntEnum):
    """Columns of `parts`, one record's."""

    SIZE, SYS_FLAG, BODY_AT, BODY_BYTES, TOPIC_AT, TOPIC_BYTES, PROPERTIES_AT, PROPERTIES_BYTES, STORED = range(9)
    TAGS_HASH, TAGS_PAIR_BYTES, TAGS_PLAIN, LEVEL, MULTI_AT = range(9, 14)


class QueueArrays(NamedTuple):
    """The queues that records are compared with; numbers of queues are rows of `rows` and `counts`."""

    slots: Words  # a hash table of number + 1, a power of two
    rows: Words  # columns: Queue
    names: Bytes
    counts: Words  # columns: Count
    addresses: Words  # of all mapped files
    matched: Bytes  # 1 for each entry that is its record's


class Notes(NamedTuple):
    """What a check of records writes, and the times of delay levels, in milliseconds."""

    delays: Words
    state: Words  # State
    parts: Words  # Part
    events: Words  # columns: Event
