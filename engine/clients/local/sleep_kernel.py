"""The compiled sleep of a consumer on the broker's host: until a queue that it watches has more."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from enum import IntEnum

import numpy as np

from engine.shared_memory.queue_table import TableWord
from ipc.arrays import Words
from ipc.compiled.atomics import Followed, await_change, load_acquire, monotonic_ns
from ipc.compiled.kernels import kernel

NAP_NS = 50_000  # behind a message of another queue: the dispatcher is not asked to wake us for each of them


class Watch(IntEnum):
    """Words of a watch: the number of calls and that of queues when it began, then a slot and an end for each."""

    CALLS = 0
    USED = 1
    QUEUES = 2


@kernel
def has_more(table: Words, watch: Words) -> bool:
    """Whether a watched queue ends behind its end, or a queue is new."""
    if load_acquire(table, TableWord.USED) > watch[Watch.USED]:
        return True
    for k in range(Watch.QUEUES, watch.size, 2):
        if load_acquire(table, TableWord.NEXT_OFFSETS + watch[k]) > watch[k + 1]:
            return True
    return False


@kernel
def await_entries(followed: Words, index: int, table: Words, calls: Words, watch: Words, timeout_ns: int) -> bool:
    """Sleep until `has_more`: True. False: the sleeper was called, the time is over, or a signal arrives.

    `followed` is reput_from_offset, which moves behind the ends in `table`.
    """
    until_ns, nothing = monotonic_ns() + timeout_ns, np.zeros(Followed.WAITERS + 1, np.int64)
    while True:
        seen = load_acquire(followed, index)
        if has_more(table, watch):
            return True
        left_ns = until_ns - monotonic_ns()
        if left_ns <= 0 or load_acquire(calls, 0) != watch[Watch.CALLS]:
            return False
        if await_change(followed, index, seen, left_ns) == seen:
            return False
        if not has_more(table, watch):
            await_change(nothing, 0, 0, NAP_NS)
