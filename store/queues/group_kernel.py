"""Rows of records to entries of consume queues, compiled: sorted into one run a (topic, queue id), in the log's order.

Implements: CommitLogDispatcherBuildConsumeQueue, ConsumeQueue.putMessagePositionInfo (spec: store-formats, 10)
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from ipc.arrays import Bytes, Words
from ipc.compiled.compiler import inlined, kernel
from ipc.compiled.memory import store_be32, store_be64
from store.message import record
from store.message.rows_kernel import Row
from store.queues.consume_queue import ENTRY_BYTES, ENTRY_SIZE_AT, ENTRY_TAGS_AT

goes_to_queue = inlined(record.goes_to_queue)


class Group(IntEnum):
    """Columns of a group."""

    FIRST_ROW, ENTRIES, STARTS_AT, FIRST_QUEUE_OFFSET, LAST_QUEUE_OFFSET, DENSE = 0, 1, 2, 3, 4, 5


@kernel
def _same_queue(array: Bytes, one: Words, other: Words) -> bool:
    if one[Row.QUEUE_ID] != other[Row.QUEUE_ID] or one[Row.TOPIC_BYTES] != other[Row.TOPIC_BYTES]:
        return False
    for i in range(one[Row.TOPIC_BYTES]):
        if array[one[Row.TOPIC_AT] + i] != array[other[Row.TOPIC_AT] + i]:
            return False
    return True


@kernel
def _group_of(array: Bytes, rows: Words, index: int, table: Words, groups: Words, known: int) -> int:
    """The number of the row's (topic, queue id), `known` for a new one; `table` is a hash table of FIRST_ROWs + 1."""
    row = rows[index]
    code = np.uint32(row[Row.QUEUE_ID]) * np.uint32(0x9E3779B1)
    for i in range(row[Row.TOPIC_AT], row[Row.TOPIC_AT] + row[Row.TOPIC_BYTES]):
        code = (code ^ np.uint32(array[i])) * np.uint32(0x01000193)
    slot = np.int64(code ^ (code >> np.uint32(15))) & (len(table) - 1)
    while table[slot] != 0:
        group = int(table[slot]) - 1
        if _same_queue(array, row, rows[groups[group, Group.FIRST_ROW]]):
            return group
        slot = (slot + 1) & (len(table) - 1)
    table[slot] = known + 1
    groups[known, Group.FIRST_ROW], groups[known, Group.ENTRIES], groups[known, Group.DENSE] = index, 0, 1
    groups[known, Group.FIRST_QUEUE_OFFSET] = row[Row.QUEUE_OFFSET]
    return known


@kernel
def group_rows(
    array: Bytes, rows: Words, count: int, base_offset: int, table: Words, groups: Words, entries: Bytes
) -> int:
    """Sort the first `count` rows into entries: all of a queue together, in the log's order. How many queues.

    `table`: zeros, a power of two above `count`; `groups`: a row per queue, STARTS_AT in entries;
    DENSE: every queue offset is the one before it plus one.
    """
    known = 0
    for index in range(count):
        row = rows[index]
        if not goes_to_queue(row[Row.SYS_FLAG]):
            continue
        number = _group_of(array, rows, index, table, groups, known)
        group = groups[number]
        if number == known:
            known += 1
        elif row[Row.QUEUE_OFFSET] != group[Group.LAST_QUEUE_OFFSET] + 1:
            group[Group.DENSE] = 0
        group[Group.ENTRIES] += 1
        group[Group.LAST_QUEUE_OFFSET] = row[Row.QUEUE_OFFSET]
        row[Row.GROUP] = number
    start = 0
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
        store_be64(entries, at, base_offset + row[Row.POSITION])
        store_be32(entries, at + ENTRY_SIZE_AT, row[Row.SIZE])
        store_be64(entries, at + ENTRY_TAGS_AT, row[Row.TAGS_CODE])
        group[Group.ENTRIES] += 1
    return known
