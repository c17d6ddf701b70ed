"""Which message of a queue was stored at a time: by bisection over the queue's entries, as RocketMQ does it.

Implements: ConsumeQueue.getOffsetInQueueByTime (4.9.7 and 5.3.3), ConsumeQueueStore.getOffsetInQueueByTime
The two versions differ. 4.9 picks a file by its modification time and answers with the message nearest in time, 5.x
picks it by the messages' own times and answers with the first one at or after the time (LOWER), or the last one at or
before it (UPPER). Both are kept to the letter, so that a reset of offsets lands where RocketMQ's does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from store.files.segment import file_name
from store.queues.consume_queue import ENTRY_BYTES, ConsumeQueue, Entries

NOT_THERE = -1  # what is asked for the store time of a record that is not in the log


class Boundary(Enum):
    """The message that is meant where several, or none, have the time: the first from it on, or the last up to it."""

    LOWER = "lower"
    UPPER = "upper"


class QueueFile(NamedTuple):
    """One file of the queue: the entries in use, of as many as it has room for."""

    first: int  # queue offset of its first entry
    entries: Entries
    room: int
    modified_ms: int


class Log(NamedTuple):
    """The log, as far as it is asked: its first offset, and the store time of a record by its place and size."""

    min_physical_offset: int
    stored_ms: Callable[[int, int], int]


def files_of(queue: ConsumeQueue, end: int) -> list[QueueFile]:
    """The queue's files below queue offset `end`, in order."""
    files: list[QueueFile] = []
    room = queue.file_bytes // ENTRY_BYTES
    for base in queue.bases():
        first = base // ENTRY_BYTES
        modified_ms = (queue.directory / file_name(base)).stat().st_mtime_ns // 1_000_000
        if first < end or not files:
            files.append(QueueFile(first, queue.map_file(base)[: max(0, end - first)], room, modified_ms))
    return files


def first_in_log(files: Sequence[QueueFile], min_physical_offset: int) -> int:
    """correctMinOffset: the queue offset of the first entry whose record is in the log still."""
    for file in files:
        in_log = (file.entries["physical_offset"] >= min_physical_offset) & (file.entries["size"] > 0)
        if in_log.any():
            return file.first + int(in_log.argmax())
    return files[-1].first + len(files[-1].entries) if files else 0


def offset_by_file_times(files: Sequence[QueueFile], min_offset: int, timestamp_ms: int, log: Log) -> int:
    """The nearest message in the first file that was written at or after the time, else in the last file."""
    if not files:
        return 0
    file = next((file for file in files if file.modified_ms >= timestamp_ms), files[-1])
    if not len(file.entries):
        return 0
    bounds = _bisect(file, max(0, min_offset - file.first), timestamp_ms, log)
    if bounds is None:
        return 0
    hit, left, left_ms, right, right_ms = bounds
    if hit is not None:
        return file.first + hit
    if left_ms == NOT_THERE:
        return _number(file, right)
    if right_ms == NOT_THERE:
        return _number(file, left)
    return _number(file, right if abs(timestamp_ms - left_ms) > abs(timestamp_ms - right_ms) else left)


def offset_by_entries(
    files: Sequence[QueueFile], min_offset: int, timestamp_ms: int, log: Log, boundary: Boundary = Boundary.LOWER
) -> int:
    """The boundary's message; within the queue's range, whatever the times are."""
    if not files:
        return 0
    end = files[-1].first + len(files[-1].entries)
    file = _file_by_time(files, timestamp_ms, log, boundary)
    queue_offset = _by_entries(file, min_offset, timestamp_ms, log, boundary)
    return min(max(queue_offset, min_offset), end)


def _by_entries(file: QueueFile | None, min_offset: int, timestamp_ms: int, log: Log, boundary: Boundary) -> int:
    """Search one file's entries by bisection, like binarySearchInQueueByTime."""
    if file is None or not len(file.entries):
        return 0
    low, high = max(0, min_offset - file.first), len(file.entries) - 1
    lower = boundary is Boundary.LOWER
    if _stored_ms(file, high, log) < timestamp_ms:
        return file.first + high + (1 if lower else 0)
    if _stored_ms(file, low, log) > timestamp_ms:
        return file.first if lower else 0
    bounds = _bisect(file, low, timestamp_ms, log)
    if bounds is None:
        return 0
    hit, left, _, right, _ = bounds
    if hit is None:
        return _number(file, right if lower else left)
    step = -1 if lower else 1
    while low <= hit + step <= high and _stored_ms(file, hit + step, log) == timestamp_ms:
        hit += step
    return file.first + hit


def _file_by_time(files: Sequence[QueueFile], timestamp_ms: int, log: Log, boundary: Boundary) -> QueueFile | None:
    """Return the file to search, like getConsumeQueueMappedFileByTime; None without one."""
    if boundary is Boundary.LOWER:
        for file in files[:-1]:
            full = len(file.entries) == file.room
            if (_positive(_stored_ms(file, file.room - 1, log)) if full else NOT_THERE) >= timestamp_ms:
                return file
        return files[-1]
    for file in reversed(files):
        if (_positive(_stored_ms(file, 0, log)) if len(file.entries) else NOT_THERE) <= timestamp_ms:
            return file
    return None


def _positive(stored_ms: int) -> int:
    return stored_ms if stored_ms > 0 else NOT_THERE


def _stored_ms(file: QueueFile, index: int, log: Log) -> int:
    if index >= len(file.entries):
        return NOT_THERE
    entry = file.entries[index]
    return log.stored_ms(int(entry["physical_offset"]), int(entry["size"]))


def _number(file: QueueFile, index: int | None) -> int:
    """A queue offset; RocketMQ's byte position -1 of a side that was never seen, divided as Java divides."""
    if index is not None:
        return file.first + index
    at = file.first * ENTRY_BYTES - 1
    return at // ENTRY_BYTES if at >= 0 else 0


def _bisect(
    file: QueueFile, low: int, timestamp_ms: int, log: Log
) -> tuple[int | None, int | None, int, int | None, int] | None:
    """(an entry of that very time, the last one seen before it, its time, the last one seen after it, its time).

    None where a record cannot be read.
    """
    high = len(file.entries) - 1
    left: int | None = None
    right: int | None = None
    left_ms = right_ms = NOT_THERE
    while high >= low:
        middle = (low + high) // 2
        if int(file.entries[middle]["physical_offset"]) < log.min_physical_offset:
            low, left = middle + 1, middle
            continue
        stored_ms = _stored_ms(file, middle, log)
        if stored_ms < 0:
            return None
        if stored_ms == timestamp_ms:
            return middle, left, left_ms, right, right_ms
        if stored_ms > timestamp_ms:
            high, right, right_ms = middle - 1, middle, stored_ms
        else:
            low, left, left_ms = middle + 1, middle, stored_ms
    return None, left, left_ms, right, right_ms
