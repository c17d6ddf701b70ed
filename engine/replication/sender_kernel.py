"""The sender's loops, compiled: frames out of the log, reports in, without a turn of the interpreter.

Implements: the usual case of HAConnection's WriteSocketService and ReadSocketService (spec: ha-protocol, 3 master side)
Which frame comes next and which reports are believed is decided in `engine/protocol/ha/connection_kernel.py`; here are
the system calls, the counters and the sleeping around it. What is not usual (a new segment, a first report, one that
cannot be true, an error) is left to `HaConnection` and to `engine.replication.sender`, with nothing changed.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from enum import IntEnum
from socket import MSG_MORE
from typing import NamedTuple

import numpy as np

from engine.protocol.ha.connection import HaConnection
from engine.protocol.ha.connection_kernel import (
    NOTHING,
    ConnectionLimits,
    ConnectionWord,
    heartbeat_wait_ms,
    is_silent,
    next_frame,
    take_acks,
)
from engine.protocol.ha.wire import FRAME_HEADER_BYTES
from engine.shared_memory.cursors import BrokerCounters, HaSlotState
from ipc.arrays import Bytes, Words
from ipc.compiled.atomics import (
    address_of,
    await_change,
    load_acquire,
    monotonic_ms,
    publish,
    raise_to,
    ring,
    store_release,
)
from ipc.compiled.kernels import inlined, kernel
from ipc.compiled.memory import store_be32, store_be64
from ipc.compiled.system_calls import PIECE_WORDS, Piece, recv, send, sendfile, writev

NS_PER_MS = 1_000_000
BUSY_MS = 1000  # of a turn in which something was sent: then the heartbeat, and how much may be sent, are looked at
ONE_CALL_BYTES = 8 * 1024  # up to here a copy out of the mapped segment costs less than a second system call

# A slave whose acknowledgements come after another's has its frames some milliseconds later: nobody waits for it, and
# its sender, woken for each message, would cost them all. Once it is waited for, it is awake again. LATE is counted for
# a late acknowledgement, FIRST taken off for a first one: of slaves that take turns, all but the lowest slot's become
# lazy.
LAZY_AFTER, LATE, FIRST, NAP_MS, AWAKE_MS = 64, 2, 1, 5, 50


class FrameWord(IntEnum):
    """`Line.frame`: what is left of the frame begun, and what was sent in all; when the log was last seen growing, and
    how late acknowledgements come (the reading half's); the rest is for system calls."""

    HEADER_LEFT = 0
    BODY_AT = 1
    BODY_LEFT = 2
    TRANSFERRED = 3
    GREW_MS = 4
    LATE_ACKS = 5
    POSITION = 6
    PIECES = 7  # the first word of two pieces


class SegmentWord(IntEnum):
    """`Line.segment`: the open one, or -1 as its base."""

    BASE = 0
    FD = 1
    ADDRESS = 2


class SenderCounter(IntEnum):
    """`Line.places`: indices of the counters, then those of the states of all lower slots."""

    END = 0
    NEXT = 1
    TRANSFERRED = 2
    ACK = 3
    LAST_READ = 4
    CONFIRM = 5
    BELL = 6
    WAKE = 7
    HELD = 8
    LOWER_STATES = 9


class Outcome(IntEnum):
    """The outcome of `transfer`; below zero: -errno."""

    BEHIND = 0
    IN_STEP = 1
    NEEDS_SEGMENT = 2
    LOOK = 3
    SHORT_FILE = 4


class Line(NamedTuple):
    """One connection as its kernels see it: shared counters, the protocol's words, and memory of its own."""

    counters: Words
    places: Words
    connection: Words
    flow: Words
    frame: Words
    segment: Words
    header: Bytes


def line_of(counters: BrokerCounters, slot: int, connection: HaConnection) -> Line:
    """The line of the slave in a slot: no frame begun, no segment open."""
    words = counters.ha[slot]
    places: Words = np.zeros(SenderCounter.LOWER_STATES + slot, np.int64)
    places[SenderCounter.LOWER_STATES :] = [lower.state.index for lower in counters.ha[:slot]]
    for place, cursor in (
        (SenderCounter.END, counters.max_physical_offset), (SenderCounter.NEXT, words.next_transfer_offset),
        (SenderCounter.TRANSFERRED, words.transferred_bytes), (SenderCounter.ACK, words.slave_ack_offset),
        (SenderCounter.LAST_READ, words.last_read_ms), (SenderCounter.CONFIRM, counters.confirm_offset),
        (SenderCounter.BELL, counters.ack_bell), (SenderCounter.WAKE, words.wake),
        (SenderCounter.HELD, words.held_offset),
    ):  # fmt: skip
        places[place] = cursor.index
    frame: Words = np.zeros(FrameWord.PIECES + 2 * PIECE_WORDS, np.int64)
    segment: Words = np.full(len(SegmentWord), -1)
    header: Bytes = np.zeros(FRAME_HEADER_BYTES, np.uint8)
    return Line(counters.region.words, places, connection.words, connection.flow.words, frame, segment, header)


@kernel
def _write(line: Line, fd: int) -> int:
    """Write what is left of a frame; the bytes written, or -errno.

    A small frame is one call, a large one is not copied.
    """
    frame, segment, header = line.frame, line.segment, line.header
    left, body_left = frame[FrameWord.HEADER_LEFT], frame[FrameWord.BODY_LEFT]
    header_at = address_of(header, 0) + FRAME_HEADER_BYTES - left
    if left and 0 < body_left <= ONE_CALL_BYTES:
        frame[FrameWord.PIECES + Piece.ADDRESS], frame[FrameWord.PIECES + Piece.LENGTH] = header_at, left
        frame[FrameWord.PIECES + PIECE_WORDS + Piece.ADDRESS] = segment[SegmentWord.ADDRESS] + frame[FrameWord.BODY_AT]
        frame[FrameWord.PIECES + PIECE_WORDS + Piece.LENGTH] = body_left
        written = writev(fd, address_of(frame, FrameWord.PIECES), 2)
    elif left:
        written = send(fd, header_at, left, MSG_MORE if body_left else 0)
    else:
        frame[FrameWord.POSITION] = frame[FrameWord.BODY_AT]
        written = sendfile(fd, segment[SegmentWord.FD], address_of(frame, FrameWord.POSITION), body_left)
    if written > 0:
        frame[FrameWord.TRANSFERRED] += written
        of_header = min(written, left)
        frame[FrameWord.HEADER_LEFT] -= of_header
        frame[FrameWord.BODY_AT] += written - of_header
        frame[FrameWord.BODY_LEFT] -= written - of_header
    return written


@kernel
def _begin(line: Line, limits: ConnectionLimits, offset: int, size: int) -> bool:
    """Promise a frame; whether its segment is open. The counter moves first: no ack may come before it."""
    frame = line.frame
    store_be64(line.header, 0, offset)
    store_be32(line.header, 8, size)
    frame[FrameWord.HEADER_LEFT], frame[FrameWord.BODY_LEFT] = FRAME_HEADER_BYTES, size
    if size == 0:
        return True
    store_release(line.counters, line.places[SenderCounter.NEXT], line.connection[ConnectionWord.NEXT])
    frame[FrameWord.BODY_AT] = offset % limits.segment_bytes
    return offset - frame[FrameWord.BODY_AT] == line.segment[SegmentWord.BASE]


@kernel
def sleep(line: Line, end: int, now_ms: int, wait_ms: int) -> bool:
    """Sleep until the log is longer than `end`, at most `wait_ms`.

    While it grows and no put waits for this slave, sleep only for a nap. False: the time is over, or the interpreter is
    wanted.
    """
    counters, places, frame = line.counters, line.places, line.frame
    if frame[FrameWord.LATE_ACKS] < LAZY_AFTER or now_ms - frame[FrameWord.GREW_MS] >= AWAKE_MS:
        return await_change(counters, places[SenderCounter.END], end, wait_ms * NS_PER_MS) != end
    seen = load_acquire(counters, places[SenderCounter.WAKE])
    if await_change(counters, places[SenderCounter.WAKE], seen, min(NAP_MS, wait_ms) * NS_PER_MS) != seen:
        return False
    if load_acquire(counters, places[SenderCounter.CONFIRM]) < end:
        frame[FrameWord.LATE_ACKS] = 0  # of what we sent before the nap, nobody else has had all
    return wait_ms > NAP_MS


@kernel
def transfer(line: Line, limits: ConnectionLimits, fd: int, now_ms: int, frames: int, timeout_ms: int) -> int:
    """Write what the log has, `frames` at most; then sleep until it grows, for `timeout_ms` in all.

    With a `timeout_ms` the clock is looked at in here; without, the time is `now_ms`. Returns why it ended.
    """
    frame, connection, end_at = line.frame, line.connection, line.places[SenderCounter.END]
    until_ms = monotonic_ms() + timeout_ms
    while frames > 0:
        if timeout_ms:
            now_ms = monotonic_ms()
        if is_silent(connection, limits, now_ms):
            return Outcome.LOOK  # within a frame, too: who reads nothing any more leaves one behind a full buffer
        if frame[FrameWord.HEADER_LEFT] + frame[FrameWord.BODY_LEFT] == 0:
            end = load_acquire(line.counters, end_at)
            offset, size = next_frame(connection, line.flow, limits, now_ms, end)
            if size == NOTHING:
                wait_ms = min(until_ms - now_ms, heartbeat_wait_ms(connection, limits, now_ms))
                if timeout_ms == 0 or wait_ms <= 0 or connection[ConnectionWord.NEXT] != end:
                    return Outcome.IN_STEP
                if not sleep(line, end, now_ms, wait_ms):
                    return Outcome.IN_STEP
                continue
            if size > 0:
                frame[FrameWord.GREW_MS] = now_ms
                until_ms = min(until_ms, now_ms + BUSY_MS)
            if not _begin(line, limits, offset, size):
                return Outcome.NEEDS_SEGMENT
        body_left = frame[FrameWord.BODY_LEFT]
        written = _write(line, fd)
        line.counters[line.places[SenderCounter.TRANSFERRED]] = frame[FrameWord.TRANSFERRED]
        if written <= 0:
            return written if written < 0 else Outcome.SHORT_FILE
        if frame[FrameWord.HEADER_LEFT] + frame[FrameWord.BODY_LEFT] == 0:
            frames -= 1
        elif timeout_ms == 0 and frame[FrameWord.HEADER_LEFT] == 0 and frame[FrameWord.BODY_LEFT] < body_left:
            return Outcome.BEHIND  # the buffer is full: the next turn brings its own time
        if timeout_ms and now_ms >= until_ms:
            return Outcome.BEHIND
    return Outcome.BEHIND


@inlined
def _note_order(line: Line, is_first: bool) -> None:
    """Note how late this slave's acknowledgements come, after one that was the first, or was not."""
    is_lowest = True
    for at in range(SenderCounter.LOWER_STATES, line.places.size):
        is_lowest = is_lowest and line.counters[line.places[at]] != HaSlotState.TRANSFER
    late = line.frame[FrameWord.LATE_ACKS]
    if not is_first:
        line.frame[FrameWord.LATE_ACKS] = min(late + LATE, LAZY_AFTER)
    elif is_lowest:
        line.frame[FrameWord.LATE_ACKS] = 0
    else:
        line.frame[FrameWord.LATE_ACKS] = max(late - FIRST, 0)


@kernel
def hear(line: Line, fd: int, buffer: Bytes, confirms: bool, fallbehind_bytes_max: int, at_ms: int) -> int:
    """Believe and publish reports as they come; the bytes of `buffer` that HaConnection must judge, 0 at the end of
    the stream, or -errno. `confirms`: one slave is enough, so what it holds is confirmed. `at_ms`: the time, or 0 to
    look at the clock.

    Who follows `ack_bell` is rung when its answer may be another: always, or, where this kernel confirms, when the
    slave was not in step.
    """
    counters, places, connection = line.counters, line.places, line.connection
    while True:
        count = recv(fd, address_of(buffer, 0), buffer.size, 0)
        if count <= 0:
            return count
        before, now_ms = connection[ConnectionWord.ACK], at_ms if at_ms else monotonic_ms()
        acked = take_acks(connection, buffer, count, now_ms)
        if acked == NOTHING:
            return count
        if acked != before:
            store_release(counters, places[SenderCounter.HELD], acked)
            publish(counters, places[SenderCounter.ACK], acked)
            if confirms:  # an atomic maximum: of several senders a late one does not lower it
                is_first = raise_to(counters, places[SenderCounter.CONFIRM], acked)
                _note_order(line, is_first)
            # The bell after both offsets: group_transfer, which it wakes, computes from them.
            if not confirms or load_acquire(counters, places[SenderCounter.END]) - before >= fallbehind_bytes_max:
                ring(counters, places[SenderCounter.BELL])
        counters[places[SenderCounter.LAST_READ]] = now_ms
