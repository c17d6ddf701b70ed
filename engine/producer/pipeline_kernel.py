"""What is under way in a ring whose owner never waits, compiled: places are kept, finished puts are found.

Implements: the usual case of GroupCommitRequest.future, for many puts at once
`table` has a row for each put under way, that of number n at n % rows; `state` says how far they were looked at. Who
publishes fills a row before the tail passes its number: also other compiled code that puts into the same ring.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from enum import IntEnum

from engine.shared_memory.latencies import record
from ipc.arrays import Words
from ipc.compiled.atomics import load_acquire, monotonic_ns
from ipc.compiled.kernels import inlined, kernel
from ipc.ring import DESCRIPTOR_WORDS, ControlWord, Descriptor, descriptor_at

PUT_OK, REFUSED = 0, -1  # statuses as `done` has them; the others are those of who judges what is not usual
ANSWERED, GIVEN_UP = -1, -2  # as END_OFFSET: it is answered already; its place may still come


class SentWord(IntEnum):
    """The words of a row. The first five are filled by who publishes, END_OFFSET with 0."""

    LENGTH = 0  # bytes of the record, or the records; 0: only the writer knows
    WAITS = 1  # for more than that it is appended
    IN_SYNC_SLAVES = 2  # as there were before it was published
    BEGAN_NS = 3
    END_OFFSET = 4  # once its place is kept
    PHYSICAL_OFFSET = 5  # … or -errno
    QUEUE_OFFSET = 6
    BYTES = 7  # what it counts for in StateWord.BYTES


class StateWord(IntEnum):
    """The words of a pipeline: places below KEPT are kept, puts below ANSWERED are answered; BYTES are under way."""

    KEPT = 0
    ANSWERED = 1
    BYTES = 2
    DONE = 3  # rows of `done` that are filled


class DoneWord(IntEnum):
    """The words of an answer."""

    NUMBER = 0
    STATUS = 1
    PHYSICAL_OFFSET = 2
    QUEUE_OFFSET = 3


SENT_WORDS, DONE_WORDS = len(SentWord), len(DoneWord)


@inlined
def note_sent(table: Words, state: Words, number: int, length: int, waits: int, in_sync: int, now_ns: int) -> None:
    """Fill the row of what is published next: so many bytes in the log, and slaves that were in sync."""
    at = number % (table.size // SENT_WORDS) * SENT_WORDS
    table[at + SentWord.LENGTH], table[at + SentWord.WAITS] = length, waits
    table[at + SentWord.IN_SYNC_SLAVES], table[at + SentWord.BEGAN_NS] = in_sync, now_ns
    table[at + SentWord.END_OFFSET], table[at + SentWord.BYTES] = 0, length
    state[StateWord.BYTES] += length


@inlined
def tell(done: Words, state: Words, table: Words, at: int, number: int, status: int) -> None:
    """Note an answer, and that it is noted."""
    to = state[StateWord.DONE] * DONE_WORDS
    done[to + DoneWord.NUMBER], done[to + DoneWord.STATUS] = number, status
    done[to + DoneWord.PHYSICAL_OFFSET] = table[at + SentWord.PHYSICAL_OFFSET]
    done[to + DoneWord.QUEUE_OFFSET] = table[at + SentWord.QUEUE_OFFSET]
    state[StateWord.DONE] += 1
    state[StateWord.BYTES] -= table[at + SentWord.BYTES]
    table[at + SentWord.END_OFFSET] = ANSWERED


@kernel
def keep_places(
    control: Words,
    descriptors: Words,
    counters: Words,
    end_index: int,
    table: Words,
    state: Words,
    done: Words,
    latencies: Words,
) -> None:
    """Keep the places of what the writer has passed; tell those that were refused, and those that wait for no more."""
    rows, slots, now_ns = table.size // SENT_WORDS, descriptors.size // DESCRIPTOR_WORDS, monotonic_ns()
    head, number = load_acquire(control, ControlWord.HEAD), state[StateWord.KEPT]
    log_end = load_acquire(counters, end_index)  # after the head, which moves after it: no record passed is behind it
    while number < head:
        at, described = number % rows * SENT_WORDS, descriptor_at(number, slots)
        physical_offset = descriptors[described + Descriptor.PHYSICAL_OFFSET]
        if table[at + SentWord.END_OFFSET] == GIVEN_UP:
            table[at + SentWord.END_OFFSET] = ANSWERED
        else:
            table[at + SentWord.PHYSICAL_OFFSET] = physical_offset
            table[at + SentWord.QUEUE_OFFSET] = descriptors[described + Descriptor.QUEUE_OFFSET]
            length = table[at + SentWord.LENGTH]
            table[at + SentWord.END_OFFSET] = physical_offset + length if length > 0 else log_end
            if physical_offset < 0:
                tell(done, state, table, at, number, REFUSED)
            elif table[at + SentWord.WAITS] == 0:
                tell(done, state, table, at, number, PUT_OK)
                record(latencies, 0, (now_ns - table[at + SentWord.BEGAN_NS]) // 1000)
        number += 1
    state[StateWord.KEPT] = number


@kernel
def tell_reached(table: Words, state: Words, done: Words, reached: int, latencies: Words) -> bool:
    """Answer puts that end at or below `reached`, in order; return whether a put further on is now the first."""
    rows, number, now_ns = table.size // SENT_WORDS, state[StateWord.ANSWERED], monotonic_ns()
    while number < state[StateWord.KEPT]:
        at = number % rows * SENT_WORDS
        end = table[at + SentWord.END_OFFSET]
        if end != ANSWERED:
            if end > reached:
                break
            tell(done, state, table, at, number, PUT_OK)
            record(latencies, 0, (now_ns - table[at + SentWord.BEGAN_NS]) // 1000)
        number += 1
    state[StateWord.ANSWERED] = number
    return number < state[StateWord.KEPT]


@kernel
def tell_first(table: Words, state: Words, done: Words, status: int, latencies: Words) -> None:
    """Answer the first put without an answer, whose place is kept, with a status decided elsewhere."""
    number = state[StateWord.ANSWERED]
    at = number % (table.size // SENT_WORDS) * SENT_WORDS
    tell(done, state, table, at, number, status)
    record(latencies, 0, (monotonic_ns() - table[at + SentWord.BEGAN_NS]) // 1000)
    state[StateWord.ANSWERED] = number + 1


@kernel
def give_up(table: Words, state: Words, done: Words, tail: int, began_until_ns: int, status: int) -> None:
    """Answer puts that the writer has not passed, and that began before, with a status for an unknown end."""
    rows = table.size // SENT_WORDS
    for number in range(state[StateWord.KEPT], tail):
        at = number % rows * SENT_WORDS
        if table[at + SentWord.BEGAN_NS] >= began_until_ns:
            return
        if table[at + SentWord.END_OFFSET] != GIVEN_UP:
            table[at + SentWord.PHYSICAL_OFFSET] = table[at + SentWord.QUEUE_OFFSET] = -1
            tell(done, state, table, at, number, status)
            table[at + SentWord.END_OFFSET] = GIVEN_UP
