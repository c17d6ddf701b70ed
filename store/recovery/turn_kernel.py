"""A usual turn of the dispatcher, compiled: what is new in the log into queues and an index file that are open.

Implements: ReputMessageService.doReput, its usual part
What is unusual is left to `store.recovery.dispatch`, as it lies.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from ipc.arrays import Bytes, Words
from ipc.compiled.kernels import kernel
from store.index.index_kernel import put_usual
from store.message.rows_kernel import Row, scan
from store.queues.group_kernel import Grouping, group_rows, put_groups


class TurnWord(IntEnum):
    """The words of a turn: where the scan stopped, behind so many rows, and why; how far it came with them; -errno."""

    POSITION, ROWS, STOP, DONE, ERROR = 0, 1, 2, 3, 4


class Done(IntEnum):
    """The stage of a turn: rows are there, they are grouped and some written, all are in queues, in the index, too."""

    SCANNED, GROUPED, QUEUED, INDEXED = 0, 1, 2, 3


@kernel
def take(
    start: int,
    limit: int,
    array: Bytes,
    base_offset: int,
    rows: Words,
    passed_on: int,
    turn: Words,
    table: Words,
    groups: Words,
    entries: Bytes,
    lanes: Words,
    names: Bytes,
    places: Words,
    queue_ends: Words,
    budget: int,
    grouping: Words,
    keys: Words,
    key_ends: Words,
    index: Bytes,
    slots: int,
    entries_max: int,
    put: Words,
) -> None:
    """Take the records from `start` on, as `scan` does. `passed_on`: bits of SPECIAL that end it at SCANNED.

    `slots`: of the index file, 0 where there is no index.
    """
    position, count, stop = scan(array, start, limit, base_offset, rows)
    turn[TurnWord.POSITION], turn[TurnWord.ROWS], turn[TurnWord.STOP] = position, count, np.int64(stop)
    turn[TurnWord.DONE], turn[TurnWord.ERROR] = Done.SCANNED, 0
    if count == 0:
        return
    for number in range(count):
        if rows[number, Row.SPECIAL] & passed_on:
            return
    group_rows(array, rows, count, base_offset, table, groups, entries, lanes, names, places, budget, grouping)
    turn[TurnWord.DONE] = Done.GROUPED
    turn[TurnWord.ERROR] = put_groups(rows, base_offset, groups, entries, lanes, queue_ends, grouping)
    if turn[TurnWord.ERROR] or grouping[Grouping.LEFT]:
        return
    turn[TurnWord.DONE] = Done.QUEUED
    taken = grouping[Grouping.TAKEN]
    if slots == 0 or put_usual(array, rows, taken, base_offset, keys, key_ends, index, slots, entries_max, put):
        turn[TurnWord.DONE] = Done.INDEXED
