"""Rows of records to entries of consume queues, compiled: sorted into one run a (topic, queue id), in the log's order.

Implements: CommitLogDispatcherBuildConsumeQueue, ConsumeQueue.putMessagePositionInfo (spec: store-formats, 10)
"""

from __future__ import annotations

import numpy as np

from ipc.arrays import Bytes, Words
from ipc.compiled.compiler import inlined, kernel
from ipc.compiled.memory import store_be32, store_be64
from store.message.rows_kernel import (
    GROUP,
    POSITION,
    QUEUE_ID,
    QUEUE_OFFSET,
    SIZE,
    SYS_FLAG,
    TAGS_CODE,
    TOPIC_AT,
    TOPIC_BYTES,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from store.queues.consume_queue import ENTRY_BYTES, ENTRY_SIZE_AT, ENTRY_TAGS_AT

# columns of a group
FIRST_ROW, ENTRIES, STARTS_AT, FIRST_QUEUE_OFFSET, LAST_QUEUE_OFFSET, DENSE = 0, 1, 2, 3, 4, 5
GROUP_WORDS = 6


@inlined
def _goes_to_queue(sys_flag: int) -> bool:
    """Prepared and rolled back messages do not."""
    kind = sys_flag & TRANSACTION_MASK
    return kind != TRANSACTION_PREPARED and kind != TRANSACTION_ROLLBACK


@kernel
def _same_queue(array: Bytes, one: Words, other: Words) -> bool:
    if one[QUEUE_ID] != other[QUEUE_ID] or one[TOPIC_BYTES] != other[TOPIC_BYTES]:
        return False
    for i in range(one[TOPIC_BYTES]):
        if array[one[TOPIC_AT] + i] != array[other[TOPIC_AT] + i]:
            return False
    return True


@kernel
def _group_of(array: Bytes, rows: Words, index: int, table: Words, groups: Words, known: int) -> int:
    """The number of the row's (topic, queue id), `known` for a new one; `table` is a hash table of FIRST_ROWs + 1."""
    row = rows[index]
    code = np.uint32(row[QUEUE_ID]) * np.uint32(0x9E3779B1)
    for i in range(row[TOPIC_AT], row[TOPIC_AT] + row[TOPIC_BYTES]):
        code = (code ^ np.uint32(array[i])) * np.uint32(0x01000193)
    slot = np.int64(code ^ (code >> np.uint32(15))) & (len(table) - 1)
    while table[slot] != 0:
        group = int(table[slot]) - 1
        if _same_queue(array, row, rows[groups[group, FIRST_ROW]]):
            return group
        slot = (slot + 1) & (len(table) - 1)
    table[slot] = known + 1
    groups[known, FIRST_ROW], groups[known, ENTRIES], groups[known, DENSE] = index, 0, 1
    groups[known, FIRST_QUEUE_OFFSET] = row[QUEUE_OFFSET]
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
        if not _goes_to_queue(row[SYS_FLAG]):
            continue
        number = _group_of(array, rows, index, table, groups, known)
        group = groups[number]
        if number == known:
            known += 1
        elif row[QUEUE_OFFSET] != group[LAST_QUEUE_OFFSET] + 1:
            group[DENSE] = 0
        group[ENTRIES] += 1
        group[LAST_QUEUE_OFFSET] = row[QUEUE_OFFSET]
        row[GROUP] = number
    start = 0
    for number in range(known):
        groups[number, STARTS_AT] = start
        start += groups[number, ENTRIES]
        groups[number, ENTRIES] = 0
    for index in range(count):
        row = rows[index]
        if row[GROUP] < 0:
            continue
        group = groups[row[GROUP]]
        at = (group[STARTS_AT] + group[ENTRIES]) * ENTRY_BYTES
        store_be64(entries, at, base_offset + row[POSITION])
        store_be32(entries, at + ENTRY_SIZE_AT, row[SIZE])
        store_be64(entries, at + ENTRY_TAGS_AT, row[TAGS_CODE])
        group[ENTRIES] += 1
    return known
