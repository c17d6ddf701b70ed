"""Waiting for the answer to a put, compiled: one call from the sleep to the place in the log, the time taken counted.

Implements: GroupCommitRequest.future, as its producer waits for it
Every put that waits is a switch to other processes, and what runs in the interpreter after one has cold caches: it
costs several times what it costs in a loop. So the usual case is one kernel of five arguments; `block` holds the
addresses of all it looks at. What is not usual it leaves to `engine.connection`.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from engine.latencies import record
from ipc.atomics import await_change, load_acquire, monotonic_ns
from ipc.compiling import kernel
from ipc.memory import words_at
from ipc.region import Words
from ipc.ring import DESCRIPTOR_WORDS, HEAD, TAIL

CONTROL_AT, DESCRIPTORS_AT, DESCRIPTORS, COUNTERS_AT, COUNTERS = 0, 1, 2, 3, 4
FOLLOWED, FAILED, LATENCIES_AT, LATENCIES, BLOCK_WORDS = 5, 6, 7, 8, 9
APPENDED = -1  # as `followed`: the ring's own head is followed, to be in the log is enough
CONTROL_WORDS = 32
WAKES_MAX = 64  # in one call, each for somebody else's record


def block_of(
    control: Words, descriptors: Words, counters: Words, followed: int, failed: int, latencies: Words
) -> Words:
    """What `follow` looks at: the ring's control and descriptors; counters, with the indices of the one that is
    followed and of the one that says no when it is not 0; the ring's latencies. All must stay mapped."""
    block = np.zeros(BLOCK_WORDS, np.int64)
    block[CONTROL_AT] = control.ctypes.data
    block[DESCRIPTORS_AT], block[DESCRIPTORS] = descriptors.ctypes.data, len(descriptors) // DESCRIPTOR_WORDS
    block[COUNTERS_AT], block[COUNTERS] = counters.ctypes.data, len(counters)
    block[FOLLOWED], block[FAILED] = followed, failed
    block[LATENCIES_AT], block[LATENCIES] = latencies.ctypes.data, len(latencies)
    return block


@kernel
def follow(block: Words, number: int, length: int, timeout_ns: int, began_ns: int) -> tuple[bool, int, int]:
    """(whether record `number` is in the log and followed, its physical offset, its queue offset).

    Not within the time, refused, its descriptor used again, or a signal came: False, and the caller looks which. Sleeps
    on the followed word alone: in a chain of stages only the last one's says that this record is done.
    """
    control = carray(words_at(block[CONTROL_AT]), (CONTROL_WORDS,))
    words = carray(words_at(block[DESCRIPTORS_AT]), (block[DESCRIPTORS] * DESCRIPTOR_WORDS,))
    counters = carray(words_at(block[COUNTERS_AT]), (block[COUNTERS],))
    at, followed = (number % block[DESCRIPTORS]) * DESCRIPTOR_WORDS, block[FOLLOWED]
    for _ in range(WAKES_MAX):
        seen = load_acquire(control, HEAD) if followed == APPENDED else load_acquire(counters, followed)
        if load_acquire(control, HEAD) > number:
            offset, queue_offset = words[at + 2], words[at + 3]
            if offset < 0 or control[TAIL] - number > block[DESCRIPTORS]:
                return False, 0, 0
            if followed == APPENDED or seen >= offset + length:
                if load_acquire(counters, block[FAILED]) != 0:
                    return False, 0, 0
                latencies = carray(words_at(block[LATENCIES_AT]), (block[LATENCIES],))
                record(latencies, 0, (monotonic_ns() - began_ns) // 1000)
                return True, offset, queue_offset
        if followed == APPENDED:
            now = await_change(control, HEAD, seen, timeout_ns)
        else:
            now = await_change(counters, followed, seen, timeout_ns)
        if now == seen:
            return False, 0, 0
    return False, 0, 0
