"""A usual turn of the dispatcher, compiled: what is new in the log into queues and an index file that are open.

Implements: ReputMessageService.doReput, its usual part
What is unusual is left to `store.recovery.dispatch`, as it lies.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ipc.arrays import Words
from ipc.compiled.kernels import kernel
from store.index.index_kernel import OpenIndex, put_into_open_file
from store.message.rows_kernel import Row, Scanned, scan
from store.queues.group_kernel import Grouping, OpenQueues, group_rows, put_groups


class TurnWord(IntEnum):
    """The words of a turn: where the scan stopped, behind so many rows, and why; how far it came with them; -errno."""

    POSITION, ROWS, STOP, DONE, ERROR = 0, 1, 2, 3, 4


class Done(IntEnum):
    """The stage of a turn: rows are there, they are grouped and some written, all are in queues, in the index, too."""

    SCANNED, GROUPED, QUEUED, INDEXED = 0, 1, 2, 3


class Turn(NamedTuple):
    """What a turn works on: the open segment with room for rows, the queues, and the open index file."""

    scanned: Scanned
    passed_on: int  # bits of SPECIAL that end a turn at SCANNED
    words: Words  # see TurnWord
    queues: OpenQueues
    keys: OpenIndex


@kernel
def take(start: int, limit: int, turn: Turn) -> None:
    """Take the records from `start` on, as `scan` does."""
    scanned, words, queues, rows = turn.scanned, turn.words, turn.queues, turn.scanned.rows
    position, count, stop = scan(scanned.array, start, limit, scanned.base_offset, rows)
    words[TurnWord.POSITION], words[TurnWord.ROWS], words[TurnWord.STOP] = position, count, np.int64(stop)
    words[TurnWord.DONE], words[TurnWord.ERROR] = Done.SCANNED, 0
    if count == 0:
        return
    for number in range(count):
        if rows[number, Row.SPECIAL] & turn.passed_on:
            return
    grouped = queues.grouped
    group_rows(scanned, count, grouped, queues.lanes, queues.budget)
    words[TurnWord.DONE] = Done.GROUPED
    words[TurnWord.ERROR] = put_groups(scanned, grouped, queues.lanes.words, queues.ends)
    if words[TurnWord.ERROR] or grouped.state[Grouping.LEFT]:
        return
    words[TurnWord.DONE] = Done.QUEUED
    if turn.keys.slots == 0 or put_into_open_file(scanned, grouped.state[Grouping.TAKEN], turn.keys):
        words[TurnWord.DONE] = Done.INDEXED
