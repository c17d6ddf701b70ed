"""The dispatcher's turns, one after the other, compiled: as long as each is a usual one, and when to rest between them.

Implements: ReputMessageService.run, doReput
Each turn costs its readers more than itself: they wake, look and answer. So turns have intervals: the more
messages one had, the longer, from INTERVAL_NS_MIN to INTERVAL_NS_MAX. Only what exceeds CREDIT_NS is rested: a message
that comes alone, and the first ones of many, are dispatched at once.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from engine.shared_memory.topic_table import Topics, count_rows
from ipc.arrays import Words
from ipc.compiled.atomics import Followed, await_change, load_acquire, monotonic_ns, publish
from ipc.compiled.kernels import kernel
from store.message.rows_kernel import Row, ScanStop
from store.queues.group_kernel import Grouping
from store.recovery.turn_kernel import Done, Turn, TurnWord, take

INTERVAL_NS_OF_MESSAGE, INTERVAL_NS_MIN, INTERVAL_NS_MAX, CREDIT_NS = 250_000, 500_000, 2_000_000, 8_000_000
TURNS_NS = 100_000_000  # then the interpreter has a turn: signals, the heartbeat
NAP_NS = 5_000_000  # between two looks: a wake-up costs more than a trickle of records
AWAKE_NS = 50_000_000  # after this long without work: sleep until the log grows, which costs its writer a system call
UNWATCHED_NS = 20_000_000  # who was woken just now sleeps again soon: only after this long does nobody wait


class Pace(IntEnum):
    """Times: when what there was so far would be due without credit; when the last turn was, and somebody waited."""

    DUE_NS, WORKED_NS, WATCHED_NS = 0, 1, 2


class Cursors(NamedTuple):
    """The counters, and the indices of those that the dispatcher looks at."""

    words: Words
    end: int  # max_physical_offset
    beginning: int  # min_physical_offset
    reput: int  # reput_from_offset


class Why(IntEnum):
    """Reasons why the loop returned: idle, unusual work, or a turn that has to be finished."""

    IDLE, UNUSUAL, TAKEN = 0, 1, 2


@kernel
def rest_ns(pace: Words, records: int, now_ns: int) -> int:
    """Return how long to rest after a turn of so many records; 0 or less: not at all."""
    interval_ns = min(max(records * INTERVAL_NS_OF_MESSAGE, INTERVAL_NS_MIN), INTERVAL_NS_MAX)
    pace[Pace.DUE_NS] = max(pace[Pace.DUE_NS], now_ns) + interval_ns
    pace[Pace.WORKED_NS] = now_ns
    return int(pace[Pace.DUE_NS] - now_ns - CREDIT_NS)


@kernel
def rest(words: Words, reput: int, pace: Words, records: int) -> None:
    """Rest after a turn; nobody else moves the cursor, so that only a signal ends it."""
    await_change(words, reput, load_acquire(words, reput), rest_ns(pace, records, monotonic_ns()))


@kernel
def naps(pace: Words, waiters: int, now_ns: int) -> bool:
    """Whether the log is looked at now and then only: it is growing, and nobody has waited lately for what is built."""
    if waiters > 0:
        pace[Pace.WATCHED_NS] = now_ns
    is_growing = now_ns - pace[Pace.WORKED_NS] < AWAKE_NS
    return bool(is_growing and now_ns - pace[Pace.WATCHED_NS] >= UNWATCHED_NS)


@kernel
def await_growth(words: Words, end: int, reput: int, seen: int, pace: Words, timeout_ns: int) -> int:
    """Sleep until the log goes behind `seen`; where nobody waits for what is built, only nap while it is growing.

    Where it ends then.
    """
    if naps(pace, load_acquire(words, reput + Followed.WAITERS), monotonic_ns()):
        await_change(words, reput, load_acquire(words, reput), min(NAP_NS, timeout_ns))
        return int(load_acquire(words, end))
    return int(await_change(words, end, seen, timeout_ns))


@kernel
def _reached(start: int, limit: int, turn: Turn, taken: int) -> int:
    """Return how far a turn came; -1 where the log is damaged."""
    scanned, words = turn.scanned, turn.words
    if taken < words[TurnWord.ROWS]:
        return int(scanned.base_offset + scanned.rows[taken, Row.POSITION])
    stop, length = words[TurnWord.STOP], len(scanned.array)
    if stop == ScanStop.BLANK and limit == length:
        return int(scanned.base_offset + length)
    if (stop == ScanStop.NO_RECORD or stop == ScanStop.DAMAGED) and words[TurnWord.POSITION] == start:
        return -1
    return int(scanned.base_offset + words[TurnWord.POSITION])


@kernel
def follow(cursors: Cursors, pace: Words, timeout_ns: int, turn: Turn, topics: Topics) -> int:
    """Follow the log within one segment until nothing comes for so long, TURNS_NS at most; see Why.

    After TAKEN the caller finishes the batch and moves the cursor.
    """
    words, end, reput, base_offset = cursors.words, cursors.end, cursors.reput, turn.scanned.base_offset
    length, until_ns = len(turn.scanned.array), monotonic_ns() + TURNS_NS
    while True:
        start, stop = load_acquire(words, reput), load_acquire(words, end)
        if start < load_acquire(words, cursors.beginning) or not base_offset <= start < base_offset + length:
            return Why.UNUSUAL
        reached, taken, limit = start, 0, min(stop - base_offset, length)
        if start < stop:
            take(start - base_offset, limit, turn)
            if turn.words[TurnWord.ROWS]:
                if turn.words[TurnWord.DONE] != Done.INDEXED:
                    return Why.TAKEN
                taken = turn.queues.grouped.state[Grouping.TAKEN]
                if count_rows(topics, turn.scanned, 0, taken) < taken:
                    return Why.TAKEN
            reached = _reached(start - base_offset, limit, turn, taken)
            if reached < 0:
                return Why.UNUSUAL
        if reached > start:
            # After queues, index and topics have the records: who follows the cursor finds them there.
            publish(words, reput, reached)
            if reached == stop:
                rest(words, reput, pace, taken)
        elif await_growth(words, end, reput, stop, pace, timeout_ns) == stop:
            return Why.IDLE  # or a signal came
        if monotonic_ns() >= until_ns:
            return Why.IDLE
