"""The records of a window, found from record to record or at places that an index names: those that a filter admits.

The chain of sizes is followed from a record's start, never guessed: a body may hold bytes that look like a record.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spark_bridge.records.head_filter import EVERY_RECORD, HeadFilter
from store.columns.records import Records, faults
from store.columns.spans import writable
from store.columns.window import LogWindow, Positions, what_is_wrong
from store.errors import CorruptRecord
from store.message import walk_kernel
from store.message.walk_kernel import Head, Stretch, WalkStop

CHUNK_RECORDS = 1 << 16
STEP_BYTES = 1 << 26  # one call of compiled code looks at no more: a signal waits for its end
CACHED_BYTES = 1 << 22


def walked(
    window: LogWindow,
    chain_from: int,
    start: int,
    end: int,
    head_filter: HeadFilter = EVERY_RECORD,
    at_a_time: int | None = None,
    cached: bool = False,
) -> Iterator[Records]:
    """The admitted records that start in [start, end), CHUNK_RECORDS or `at_a_time`, then the rest, ascending.

    With `cached` they come after CACHED_BYTES of the log, which are in the CPU's caches then. `chain_from` <= start is
    where some record certainly starts (a segment's first byte, a consume queue's entry).
    Stops quietly at a blank record, and at a record that the limit cuts. Raises CorruptRecord where the chain breaks,
    and where a topic that the filter asks for cannot be read.
    """
    room, step = CHUNK_RECORDS if at_a_time is None else at_a_time, CACHED_BYTES if cached else STEP_BYTES
    position, end, stop = chain_from, min(end, window.length), WalkStop.END
    heads, count, is_over = _room(room), 0, position >= end
    while not is_over:
        stretch = Stretch(start, min(position + step, end), window.segment_bytes, window.base_offset)
        position, count, stop = walk_kernel.walk(window.bytes, position, stretch, head_filter.wanted, heads, count)
        if stop == WalkStop.NEW_TOPIC:
            head_filter.learn(_topic_at(window, position))
            continue
        is_over = stop != WalkStop.FULL and (stop != WalkStop.END or position < stretch.end or position >= end)
        if count and (cached or is_over or stop == WalkStop.FULL):
            yield _taken(window, heads, count)
            heads, count = _room(room), 0
    if stop != WalkStop.END:
        raise _error(window, position)


def collected(window: LogWindow, starts: Positions, head_filter: HeadFilter = EVERY_RECORD) -> Records:
    """The admitted ones of the records that begin at some positions, name themselves so and are whole.

    For places that an index tells, which may outlive what they name. Raises CorruptRecord as `walked` does.
    """
    starts = writable(starts)
    heads, number, count, stop = _room(len(starts)), 0, 0, WalkStop.NEW_TOPIC
    while stop == WalkStop.NEW_TOPIC:
        number, count, stop = walk_kernel.collect(
            window.bytes, starts, number, window.base_offset, head_filter.wanted, heads, count
        )
        if stop == WalkStop.NEW_TOPIC:
            head_filter.learn(_topic_at(window, int(starts[number])))
    if stop != WalkStop.END:
        raise _error(window, int(starts[number]))
    return _taken(window, heads, count)


def _room(records: int) -> Positions:
    return np.empty((len(Head), records), np.int64)


def _taken(window: LogWindow, heads: Positions, count: int) -> Records:
    """The first `count` records; a few do not keep the memory of many."""
    part = heads[:, :count] if 2 * count > heads.shape[1] else heads[:, :count].copy()
    return Records(window, part[Head.START], part)


def _topic_at(window: LogWindow, position: int) -> bytes:
    at, length = Records(window, np.array([position])).topic_span
    return window.bytes[int(at[0]) : int(at[0] + length[0])].tobytes()


def _error(window: LogWindow, position: int) -> CorruptRecord:
    reason = what_is_wrong(window, position) or faults(Records(window, np.array([position])))[0]
    return window.corrupt(position, reason)
