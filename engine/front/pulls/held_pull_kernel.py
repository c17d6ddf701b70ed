"""Usual pulls that wait for messages, compiled: all that wake, or have waited long enough, are answered in one call.

Implements: PullRequestHoldService, ManyPullRequest, for pulls of all messages (spec: remoting, 7 and 10)
What is beyond OF_A_KIND_MAX of one kind, and one that wants some tags only, is held by
`engine.protocol.pulling.hold_list`. Rows that are held lie without gaps: who leaves makes room for the last.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from engine.front.pulls.pull_answer_kernel import FOUND, TAKEN, answer, answer_end, begin, end_of, flush, look, mark
from engine.front.pulls.pull_words import (
    HELD_WORDS,
    KNOWN_WORDS,
    NO_SOCKET,
    OF_A_KIND_MAX,
    HeldWord,
    KnownWord,
    PullWord,
    Unusual,
)
from engine.protocol.pulling.header import PullFlag
from engine.protocol.pulling.select_kernel import Taken
from ipc.arrays import Words
from ipc.clock import NS_PER_MS
from ipc.compiled.atomics import monotonic_ns
from ipc.compiled.kernels import kernel
from ipc.compiled.memory import carray, words_at

WOKEN_MAX = 256  # answered in a call
WOKEN_BYTES_MAX = 256 * 1024  # in a call
WOKEN_BODY_MAX = 64 * 1024  # of one, 32 messages of 1 KiB are 38; before a larger one Python looks if its peer takes it
LONG_MAX = (1 << 62) - 1
EVERYBODY, NEVER = -1, -1  # as a connection, as a time


@kernel
def note_end(block: Words) -> None:
    """Note in the row of the pull looked at last that its client knows the queue's end."""
    known = carray(words_at(block[PullWord.KNOWN_AT]), (block[PullWord.KNOWN] * KNOWN_WORDS,))
    row = block[PullWord.ROW]
    if known[row + KnownWord.IS_PULLED] == 0 or known[row + KnownWord.NEXT_OFFSET] != block[PullWord.OFFSET]:
        mark(block, row)
        known[row + KnownWord.NEXT_OFFSET], known[row + KnownWord.BEHIND_BYTES] = block[PullWord.OFFSET], -1
        known[row + KnownWord.IS_PULLED] = 1


@kernel
def hold(block: Words) -> bool:
    """Keep the pull that was looked at last, whose queue has nothing more; False where Python has to."""
    known = carray(words_at(block[PullWord.KNOWN_AT]), (block[PullWord.KNOWN] * KNOWN_WORDS,))
    row = block[PullWord.ROW]
    if known[row + KnownWord.FLAGS] & PullFlag.SUSPEND == 0 or known[row + KnownWord.TAKES_ALL] == 0:
        return False
    if known[row + KnownWord.HELD] >= OF_A_KIND_MAX:
        return False
    if block[PullWord.HELD] >= min(block[PullWord.HELD_MAX], block[PullWord.KNOWN]):
        return False
    held = carray(words_at(block[PullWord.HELD_AT]), (block[PullWord.KNOWN] * HELD_WORDS,))
    at = block[PullWord.HELD] * HELD_WORDS
    block[PullWord.HELD] += 1
    known[row + KnownWord.HELD] += 1
    waits_ms = block[PullWord.SUSPEND_MS] if block[PullWord.SHORT_MS] < 0 else block[PullWord.SHORT_MS]
    held[at + HeldWord.OFFSET] = block[PullWord.OFFSET]
    held[at + HeldWord.ROW], held[at + HeldWord.PEER] = row, block[PullWord.PEER]
    held[at + HeldWord.MOST], held[at + HeldWord.OPAQUE] = block[PullWord.MOST], block[PullWord.OPAQUE]
    held[at + HeldWord.FORM], held[at + HeldWord.COMMIT] = block[PullWord.FORM], block[PullWord.COMMIT]
    held[at + HeldWord.SUSPEND_MS] = block[PullWord.SUSPEND_MS]
    held[at + HeldWord.CAME_NS] = monotonic_ns()
    held[at + HeldWord.UNTIL_MS] = min(held[at + HeldWord.CAME_NS] // NS_PER_MS + waits_ms, LONG_MAX)
    return True


@kernel
def _let_go(block: Words, place: int) -> None:
    """Move one from those that are held to the woken ones."""
    known = carray(words_at(block[PullWord.KNOWN_AT]), (block[PullWord.KNOWN] * KNOWN_WORDS,))
    held = carray(words_at(block[PullWord.HELD_AT]), (block[PullWord.KNOWN] * HELD_WORDS,))
    woken = carray(words_at(block[PullWord.WOKEN_AT]), (WOKEN_MAX * HELD_WORDS,))
    at, to, last = place * HELD_WORDS, block[PullWord.WOKEN] * HELD_WORDS, (block[PullWord.HELD] - 1) * HELD_WORDS
    for k in range(HELD_WORDS):
        woken[to + k] = held[at + k]
        held[at + k] = held[last + k]
    known[woken[to + HeldWord.ROW] + KnownWord.HELD] -= 1
    block[PullWord.WOKEN] += 1
    block[PullWord.HELD] -= 1


@kernel
def _serve(block: Words, row: int, offset: int, most: int) -> int:
    """The answer to a pull that waited, behind what is written; which one that is, or why Python has to look."""
    taken = carray(words_at(block[PullWord.TAKEN_AT]), (TAKEN,))
    reason = look(block, row, offset, most)
    if reason == Unusual.NOT_YET:
        return answer_end(block, row)
    if reason != 0:
        return reason
    if taken[Taken.BYTES] > WOKEN_BODY_MAX:
        return Unusual.ROOM
    reason = answer(block, row)
    return reason if reason != 0 else FOUND


@kernel
def _begin(block: Words) -> None:
    """Begin a call: nothing is woken or written yet, and answers stay in `out`."""
    begin(block, NO_SOCKET)
    block[PullWord.WOKEN] = 0


@kernel
def wake_held(block: Words, place: int, now_ms: int) -> int:
    """Answer those from that place on whose queues have more, or whose time is over: up to which place all are looked
    at."""
    held = carray(words_at(block[PullWord.HELD_AT]), (block[PullWord.KNOWN] * HELD_WORDS,))
    woken = carray(words_at(block[PullWord.WOKEN_AT]), (WOKEN_MAX * HELD_WORDS,))
    _begin(block)
    while place < block[PullWord.HELD] and block[PullWord.WOKEN] < WOKEN_MAX:
        at = place * HELD_WORDS
        is_over = held[at + HeldWord.UNTIL_MS] <= now_ms
        if not is_over and end_of(block, held[at + HeldWord.ROW]) <= held[at + HeldWord.OFFSET]:
            place += 1
            continue
        if block[PullWord.ANSWERED] >= WOKEN_BYTES_MAX:
            break
        to, first = block[PullWord.WOKEN] * HELD_WORDS, block[PullWord.WRITTEN]
        _let_go(block, place)
        block[PullWord.OPAQUE], block[PullWord.FORM] = woken[to + HeldWord.OPAQUE], woken[to + HeldWord.FORM]
        offset, most = woken[to + HeldWord.OFFSET], woken[to + HeldWord.MOST]
        woken[to + HeldWord.ANSWER] = _serve(block, woken[to + HeldWord.ROW], offset, most)
        woken[to + HeldWord.BEGIN], woken[to + HeldWord.END] = first, block[PullWord.WRITTEN]
    return place


@kernel
def send_woken(block: Words, fd: int, first: int, end: int) -> None:
    """Answers to woken pulls, out[first:end], into a socket; what it did not take is out[SENT:WRITTEN] afterwards."""
    begin(block, fd)
    block[PullWord.SENT], block[PullWord.WRITTEN] = first, end
    flush(block, 0)


@kernel
def release_held(block: Words, place: int, peer: int) -> int:
    """Let those go from that place on that are a connection's, or everybody's; else as `wake_held`."""
    held = carray(words_at(block[PullWord.HELD_AT]), (block[PullWord.KNOWN] * HELD_WORDS,))
    _begin(block)
    while place < block[PullWord.HELD] and block[PullWord.WOKEN] < WOKEN_MAX:
        at = place * HELD_WORDS
        if held[at + HeldWord.PEER] == peer or peer == EVERYBODY:
            to = block[PullWord.WOKEN] * HELD_WORDS
            _let_go(block, place)
            woken = carray(words_at(block[PullWord.WOKEN_AT]), (WOKEN_MAX * HELD_WORDS,))
            woken[to + HeldWord.BEGIN] = woken[to + HeldWord.END] = 0
        else:
            place += 1
    return place
