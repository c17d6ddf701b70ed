"""Rows of records to entries of consume queues, compiled: sorted into one run a (topic, queue id), in the log's order.

Implements: CommitLogDispatcherBuildConsumeQueue, ConsumeQueue.putMessagePositionInfo (spec: store-formats, 10)
The runs of queues that simply go on, in files that are open, are written here, too; what is not is left to
`store.queues.builders`, whose rules are these for the usual case. Written with pwrite, as there. Whether a file still
has its name is asked after the write: who removes it later removes what was written, too.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ipc.arrays import Bytes, Words
from ipc.compiled.atomics import address_of, store_release
from ipc.compiled.kernels import bare_kernel, inlined, kernel
from ipc.compiled.memory import store_be32, store_be64
from ipc.compiled.system_calls import STATX_WORDS, names_of_file, write_bytes
from ipc.compiled.texts import name_hash, same_bytes
from store.message import record
from store.message.rows_kernel import Row, Scanned
from store.queues.consume_queue import ENTRY_BYTES, ENTRY_SIZE_AT, ENTRY_TAGS_AT

goes_to_queue = inlined(record.goes_to_queue)
CLOSED = NO_LANE = -1
NEW_COST, NO_BUDGET = 8, 1 << 62


class Group(IntEnum):
    """Columns of a group; IS_DONE: it is written."""

    FIRST_ROW, ENTRIES, STARTS_AT, FIRST_QUEUE_OFFSET, LAST_QUEUE_OFFSET, DENSE = 0, 1, 2, 3, 4, 5
    LANE, LAST_ROW, IS_DONE = 6, 7, 8


class Lane(IntEnum):
    """Columns of a lane: its queue's end; the end of the last record there, in the log; the open file, which holds the
    queue offsets [FIRST, UNTIL); its slot in the table of ends; its name; written to since a file had to be closed."""

    END, REACHED, FD, FIRST, UNTIL, SLOT, QUEUE_ID, NAME_AT, NAME_BYTES, IS_USED = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9


class Grouping(IntEnum):
    """The progress of a grouping: rows TAKEN (all, or as many as may open queues), of so many QUEUES.

    So many of them are LEFT to the caller; the file of GROUP could not be written.
    """

    TAKEN, QUEUES, LEFT, GROUP = 0, 1, 2, 3


class LaneTable(NamedTuple):
    """A row of `Lane` for each queue, their names one behind the other, and a hash table of lane + 1."""

    words: Words
    names: Bytes
    places: Words  # a power of two


class Groups(NamedTuple):
    """Memory of a grouping, and what it has come to."""

    table: Words  # at least twice as many words as rows, a power of two
    rows: Words  # a row of `Group` for each queue; STARTS_AT in `entries`
    entries: Bytes
    state: Words  # see Grouping


class OpenQueues(NamedTuple):
    """All that a turn knows of queues; `budget` is that of `group_rows`."""

    grouped: Groups
    lanes: LaneTable
    ends: Words  # by slot, where others look
    budget: int


@bare_kernel
def _same_queue(array: Bytes, one: Words, other: Words) -> bool:
    if one[Row.QUEUE_ID] != other[Row.QUEUE_ID] or one[Row.TOPIC_BYTES] != other[Row.TOPIC_BYTES]:
        return False
    return bool(same_bytes(array, one[Row.TOPIC_AT], array, other[Row.TOPIC_AT], one[Row.TOPIC_BYTES]))


@bare_kernel
def _lane_of(array: Bytes, row: Words, code: int, lanes: LaneTable) -> int:
    """The lane of the row's queue; NO_LANE for one that has none."""
    places = lanes.places
    place = code & (len(places) - 1)
    while places[place] != 0:
        lane = places[place] - 1
        own = lanes.words[lane]
        is_alike = own[Lane.QUEUE_ID] == row[Row.QUEUE_ID] and own[Lane.NAME_BYTES] == row[Row.TOPIC_BYTES]
        if is_alike and same_bytes(array, row[Row.TOPIC_AT], lanes.names, own[Lane.NAME_AT], row[Row.TOPIC_BYTES]):
            return int(lane)
        place = (place + 1) & (len(places) - 1)
    return NO_LANE


@kernel
def enter_lanes(lanes: Words, names: Bytes, places: Words, first: int, until: int) -> None:
    """Have the lanes [first, until) found; `places` has room for them."""
    for lane in range(first, until):
        own = lanes[lane]
        place = name_hash(names, own[Lane.NAME_AT], own[Lane.NAME_BYTES], own[Lane.QUEUE_ID]) & (len(places) - 1)
        while places[place] != 0:
            place = (place + 1) & (len(places) - 1)
        places[place] = lane + 1


@bare_kernel
def group_rows(scanned: Scanned, count: int, grouped: Groups, lanes: LaneTable, budget: int) -> None:
    """Sort the first `count` rows into entries: all of a queue together, in the log's order; see Grouping.

    DENSE: every queue offset is the one before it plus one.
    `budget`: how much opening of queues may cost: one without a lane NEW_COST, one whose file is not open 1.
    """
    array, rows, table, groups = scanned.array, scanned.rows, grouped.table, grouped.rows
    mask = 1
    while mask < 2 * count:
        mask *= 2
    table[:mask] = 0
    mask, known, taken = mask - 1, 0, 0
    while taken < count:
        row = rows[taken]
        row[Row.GROUP] = -1
        if not goes_to_queue(row[Row.SYS_FLAG]):
            taken += 1
            continue
        code = name_hash(array, row[Row.TOPIC_AT], row[Row.TOPIC_BYTES], row[Row.QUEUE_ID])
        slot = code & mask
        while table[slot] != 0 and not _same_queue(array, row, rows[groups[table[slot] - 1, Group.FIRST_ROW]]):
            slot = (slot + 1) & mask
        number = table[slot] - 1
        if number < 0:
            lane = _lane_of(array, row, code, lanes)
            budget -= NEW_COST if lane == NO_LANE else 0 if lanes.words[lane, Lane.FD] != CLOSED else 1
            if budget < 0 and known > 0:
                break
            number, known = known, known + 1
            table[slot] = known
            fresh = groups[number]
            fresh[Group.FIRST_ROW], fresh[Group.ENTRIES], fresh[Group.DENSE] = taken, 0, 1
            fresh[Group.FIRST_QUEUE_OFFSET], fresh[Group.LANE], fresh[Group.IS_DONE] = row[Row.QUEUE_OFFSET], lane, 0
        elif row[Row.QUEUE_OFFSET] != groups[number, Group.LAST_QUEUE_OFFSET] + 1:
            groups[number, Group.DENSE] = 0
        group = groups[number]
        group[Group.ENTRIES] += 1
        group[Group.LAST_QUEUE_OFFSET], group[Group.LAST_ROW] = row[Row.QUEUE_OFFSET], taken
        row[Row.GROUP] = number
        taken += 1
    _fill_entries(scanned, taken, groups, known, grouped.entries)
    state = grouped.state
    state[Grouping.TAKEN], state[Grouping.QUEUES], state[Grouping.LEFT] = taken, known, known


@bare_kernel
def _fill_entries(scanned: Scanned, count: int, groups: Words, known: int, entries: Bytes) -> None:
    rows, start = scanned.rows, 0
    for number in range(known):
        groups[number, Group.STARTS_AT] = start
        start += groups[number, Group.ENTRIES]
        groups[number, Group.ENTRIES] = 0
    for index in range(count):
        row = rows[index]
        if row[Row.GROUP] < 0:
            continue
        group = groups[row[Row.GROUP]]
        at = (group[Group.STARTS_AT] + group[Group.ENTRIES]) * ENTRY_BYTES
        store_be64(entries, at, scanned.base_offset + row[Row.POSITION])
        store_be32(entries, at + ENTRY_SIZE_AT, row[Row.SIZE])
        store_be64(entries, at + ENTRY_TAGS_AT, row[Row.TAGS_CODE])
        group[Group.ENTRIES] += 1


@kernel
def put_groups(scanned: Scanned, grouped: Groups, lanes: Words, ends: Words) -> int:
    """Write the groups whose queues simply go on in an open file, and show their ends; what is LEFT is not touched.

    0, or -errno.
    """
    rows, base_offset, entries, state = scanned.rows, scanned.base_offset, grouped.entries, grouped.state
    scratch = np.empty(STATX_WORDS, np.int64)
    for number in range(state[Grouping.QUEUES]):
        group = grouped.rows[number]
        if group[Group.LANE] == NO_LANE or group[Group.DENSE] == 0:
            continue
        own, count = lanes[group[Group.LANE]], group[Group.ENTRIES]
        end = own[Lane.END]
        follows = base_offset + rows[group[Group.FIRST_ROW], Row.POSITION] >= own[Lane.REACHED]
        if own[Lane.FD] == CLOSED or group[Group.FIRST_QUEUE_OFFSET] != end or not follows:
            continue
        if end + count > own[Lane.UNTIL]:
            continue
        address, position = address_of(entries, group[Group.STARTS_AT] * ENTRY_BYTES), (end - own[Lane.FIRST])
        result = write_bytes(own[Lane.FD], address, count * ENTRY_BYTES, position * ENTRY_BYTES)
        if result < 0:
            state[Grouping.GROUP] = number
            return int(result)
        if names_of_file(own[Lane.FD], scratch) <= 0:
            continue
        last = rows[group[Group.LAST_ROW]]
        own[Lane.END], own[Lane.IS_USED] = end + count, 1
        own[Lane.REACHED] = base_offset + last[Row.POSITION] + last[Row.SIZE]
        if own[Lane.SLOT] >= 0:
            store_release(ends, own[Lane.SLOT], end + count)  # after the entries are in the file
        group[Group.IS_DONE] = 1
        state[Grouping.LEFT] -= 1
    return 0
