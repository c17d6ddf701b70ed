"""The dispatcher's turns, one after the other, compiled: as long as each is a usual one, and when to rest between them.

Implements: ReputMessageService.run, doReput
Each turn costs its readers more than itself: they wake, look and answer. So turns have intervals: the more
messages one had, the longer, from INTERVAL_NS_MIN to INTERVAL_NS_MAX. Only what exceeds CREDIT_NS is rested: a message
that comes alone, and the first ones of many, are dispatched at once.
"""

from __future__ import annotations

from enum import IntEnum

from engine.board.topic_table import count_rows
from ipc.arrays import Bytes, Words
from ipc.compiled.atomics import Followed, await_change, load_acquire, monotonic_ns, publish
from ipc.compiled.kernels import kernel
from store.message.rows_kernel import Row, ScanStop
from store.queues.group_kernel import Grouping
from store.recovery.turn_kernel import Done, TurnWord, take

INTERVAL_NS_OF_MESSAGE, INTERVAL_NS_MIN, INTERVAL_NS_MAX, CREDIT_NS = 250_000, 500_000, 2_000_000, 8_000_000
TURNS_NS = 100_000_000  # then the interpreter has a turn: signals, the heartbeat
NAP_NS = 5_000_000  # between two looks: a wake-up costs more than a trickle of records
AWAKE_NS = 50_000_000  # after this long without work: sleep until the log grows, which costs its writer a system call
UNWATCHED_NS = 20_000_000  # who was woken just now sleeps again soon: only after this long does nobody wait


class Pace(IntEnum):
    """Times: when what there was so far would be due without credit; when the last turn was, and somebody waited."""

    DUE_NS, WORKED_NS, WATCHED_NS = 0, 1, 2


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
def _reached(start: int, limit: int, array: Bytes, base_offset: int, rows: Words, turn: Words, taken: int) -> int:
    """Return how far a turn came; -1 where the log is damaged."""
    if taken < turn[TurnWord.ROWS]:
        return int(base_offset + rows[taken, Row.POSITION])
    stop = turn[TurnWord.STOP]
    if stop == ScanStop.BLANK and limit == len(array):
        return int(base_offset + len(array))
    if (stop == ScanStop.NO_RECORD or stop == ScanStop.DAMAGED) and turn[TurnWord.POSITION] == start:
        return -1
    return int(base_offset + turn[TurnWord.POSITION])


@kernel
def follow(
    words: Words,
    end: int,
    beginning: int,
    reput: int,
    pace: Words,
    timeout_ns: int,
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
    topics: Words,
    topic_names: Bytes,
    topic_table: Words,
    sums: Words,
    changed: Words,
) -> int:
    """Follow the log within one segment until nothing comes for so long, TURNS_NS at most; see Why.

    `end`, `beginning`, `reput`: where the log's bounds and reput_from_offset are; the rest is `take`'s and
    `count_rows`'. After TAKEN the caller finishes the batch and moves the cursor.
    """
    until_ns = monotonic_ns() + TURNS_NS
    while True:
        start, stop = load_acquire(words, reput), load_acquire(words, end)
        if start < load_acquire(words, beginning) or not base_offset <= start < base_offset + len(array):
            return Why.UNUSUAL
        reached, taken, limit = start, 0, min(stop - base_offset, len(array))
        if start < stop:
            take(
                start - base_offset,
                limit,
                array,
                base_offset,
                rows,
                passed_on,
                turn,
                table,
                groups,
                entries,
                lanes,
                names,
                places,
                queue_ends,
                budget,
                grouping,
                keys,
                key_ends,
                index,
                slots,
                entries_max,
                put,
            )
            if turn[TurnWord.ROWS]:
                if turn[TurnWord.DONE] != Done.INDEXED:
                    return Why.TAKEN
                taken = grouping[Grouping.TAKEN]
                counted = count_rows(
                    topics, topic_names, topic_table, sums, changed, array, base_offset, rows, 0, taken
                )
                if counted < taken:
                    return Why.TAKEN
            reached = _reached(start - base_offset, limit, array, base_offset, rows, turn, taken)
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
