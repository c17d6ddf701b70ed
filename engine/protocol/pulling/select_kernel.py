"""Which of a queue's units a pull gets, compiled: filter, limits, what is no longer in the log, ranges to be sent.

Implements: the loop of DefaultMessageStore.getMessage, isTheBatchFull, estimateInMemByCommitOffset,
            ExpressionMessageFilter.isMatchedByConsumeQueue
Both versions go through this loop: where a queue has one message a unit, 5.x's is 4.9's but for COUNTS_REFUSED.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from enum import IntEnum

from ipc.arrays import Words
from ipc.compiled.kernels import kernel
from store.message.unit import LAST_ADDRESS, Unit

INT32 = 1 << 32
RANGES_MAX = 4096


class Limit(IntEnum):
    """Indexes of the limits of a pull."""

    MESSAGES = 0  # maxMsgNums
    COUNT_IN_MEMORY = 1
    BYTES_IN_MEMORY = 2
    COUNT_ON_DISK = 3
    BYTES_ON_DISK = 4
    MEMORY_BYTES = 5  # a record so far behind the log's end is on disk
    LOG_BEGINS = 6
    LOG_ENDS = 7
    SEGMENT_BYTES = 8
    COUNTS_REFUSED = 9  # 1: the unit that found no room says how far behind the pull is (4.9)
    TAKES_ALL = 10  # 1: no filter
    SCAN_BEFORE = 11  # the queue offset at which the search ends, whatever it met


class RangeColumn(IntEnum):
    """Columns of the ranges that are to be sent."""

    OFFSET = 0
    BYTES = 1


class Taken(IntEnum):
    """Indexes of a selection's results."""

    UNITS = 0  # passed, whether taken or not
    MESSAGES = 1
    BYTES = 2
    RANGES = 3
    FURTHEST = 4  # physical offset of the last unit looked at
    NEXT_OFFSET = 5  # queue offset behind the last unit passed; -1: none was
    REMOVED = 6  # 1: the last unit passed before anything was taken is no longer in the log
    IS_FULL = 7  # 1: it ended before a unit: no room, or it has looked far enough


@kernel
def is_matched(tags_code: int, codes: Words) -> bool:
    """Whether a unit's tags code is one of `codes` (ascending)."""
    if tags_code <= LAST_ADDRESS:  # of a unit that is not there: it says nothing
        return True
    code = tags_code & (INT32 - 1)  # Long.intValue
    if code >= INT32 >> 1:
        code -= INT32
    low, high = 0, codes.size
    while low < high:
        middle = (low + high) // 2
        if codes[middle] < code:
            low = middle + 1
        else:
            high = middle
    return low < codes.size and codes[low] == code


@kernel
def any_matched(units: Words, count: int, codes: Words) -> bool:
    """Whether one of the first `count` units is matched."""
    for index in range(count):
        if is_matched(units[index, Unit.TAGS_CODE], codes):
            return True
    return False


@kernel
def _is_full(size: int, messages: int, is_on_disk: bool, limits: Words, taken: Words) -> bool:
    if taken[Taken.BYTES] == 0 or taken[Taken.MESSAGES] == 0:
        return False
    if taken[Taken.MESSAGES] + messages > limits[Limit.MESSAGES]:
        return True
    count = limits[Limit.COUNT_ON_DISK] if is_on_disk else limits[Limit.COUNT_IN_MEMORY]
    bytes_max = limits[Limit.BYTES_ON_DISK] if is_on_disk else limits[Limit.BYTES_IN_MEMORY]
    return taken[Taken.BYTES] + size > bytes_max or taken[Taken.MESSAGES] > count - 1


@kernel
def _is_in_log(offset: int, size: int, limits: Words) -> bool:
    if size <= 0 or offset < limits[Limit.LOG_BEGINS] or offset > limits[Limit.LOG_ENDS] - size:
        return False
    return offset % limits[Limit.SEGMENT_BYTES] + size <= limits[Limit.SEGMENT_BYTES]


@kernel
def _add(ranges: Words, offset: int, size: int, segment_bytes: int, taken: Words) -> None:
    """The record into the last range where it lies behind it in one file, else into a new one."""
    last = taken[Taken.RANGES] - 1
    end = ranges[last, RangeColumn.OFFSET] + ranges[last, RangeColumn.BYTES] if last >= 0 else -1
    if end == offset and offset % segment_bytes:
        ranges[last, RangeColumn.BYTES] += size
        return
    ranges[last + 1, RangeColumn.OFFSET], ranges[last + 1, RangeColumn.BYTES] = offset, size
    taken[Taken.RANGES] += 1


@kernel
def select(units: Words, count: int, limits: Words, codes: Words, ranges: Words, taken: Words) -> None:
    """Go through the first `count` units; `ranges` (offset, bytes) and `taken` say what was taken."""
    segment_bytes = limits[Limit.SEGMENT_BYTES]
    for word in range(taken.size):
        taken[word] = 0
    taken[Taken.NEXT_OFFSET] = -1
    skipped_to = -1
    for index in range(count):
        offset, size = units[index, Unit.PHYSICAL_OFFSET], units[index, Unit.SIZE]
        messages = units[index, Unit.MESSAGES]
        if units[index, Unit.QUEUE_OFFSET] >= limits[Limit.SCAN_BEFORE]:
            taken[Taken.IS_FULL] = 1
            return
        if limits[Limit.COUNTS_REFUSED]:
            taken[Taken.FURTHEST] = offset
        is_on_disk = limits[Limit.LOG_ENDS] - offset > limits[Limit.MEMORY_BYTES]
        is_skipped = skipped_to >= 0 and offset < skipped_to
        is_full = _is_full(size, messages, is_on_disk, limits, taken) or taken[Taken.RANGES] == ranges.shape[0]
        if is_full and (limits[Limit.COUNTS_REFUSED] == 0 or not is_skipped):
            taken[Taken.IS_FULL] = 1
            return
        taken[Taken.FURTHEST] = offset
        taken[Taken.UNITS] = index + 1
        taken[Taken.NEXT_OFFSET] = units[index, Unit.QUEUE_OFFSET] + messages
        if is_skipped:
            continue
        if limits[Limit.TAKES_ALL] == 0 and not is_matched(units[index, Unit.TAGS_CODE], codes):
            if taken[Taken.BYTES] == 0:
                taken[Taken.REMOVED] = 0
            continue
        if not _is_in_log(offset, size, limits):
            if taken[Taken.BYTES] == 0:
                taken[Taken.REMOVED] = 1
            skipped_to = offset + segment_bytes - offset % segment_bytes
            continue
        _add(ranges, offset, size, segment_bytes, taken)
        taken[Taken.MESSAGES] += messages
        taken[Taken.BYTES] += size
        skipped_to = -1
