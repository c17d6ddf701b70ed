"""The sender's loops, compiled: frames out of the log, reports in, without a turn of the interpreter.

Implements: the usual case of HAConnection's WriteSocketService and ReadSocketService (spec: ha-protocol, 3 master side)
What is decided here is what `protocol/ha_connection.py` decides, on the same words; what is not usual (a new segment, a
first report, one that cannot be true, an error) is left to it and to `engine.replication.sender`, with nothing changed.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from socket import MSG_MORE
from typing import NamedTuple

import numpy as np

from engine.board.cursors import Board
from engine.protocol.ha.connection import (
    ACK_OFFSET,
    LAST_READ_MS,
    LAST_WRITE_MS,
    NEXT_OFFSET,
    PROVES_FROM,
    REQUEST_OFFSET,
    UNKNOWN_OFFSET,
    ConnectionLimits,
    HaConnection,
)
from engine.protocol.ha.flow_monitor import IN_LAST_WINDOW, IN_WINDOW, LIMIT, WINDOW_BEGINS_MS, WINDOW_MS
from engine.protocol.ha.wire import FRAME_HEADER_BYTES, REPORT_BYTES
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
from ipc.compiled.compiler import inlined, kernel
from ipc.compiled.memory import load_be64, store_be32, store_be64
from ipc.compiled.system_calls import ADDRESS, LENGTH, PIECE_WORDS, recv, send, sendfile, writev

NS_PER_MS = 1_000_000
ONE_CALL_BYTES = 8 * 1024  # up to here a copy out of the mapped segment costs less than a second system call

# A slave whose acknowledgements come after another's has its frames some milliseconds later: nobody waits for it, and
# its sender, woken for each message, would cost them all. Once it is waited for, it is awake again. LATE is counted for
# a late acknowledgement, FIRST taken off for a first one: of slaves that take turns, all but the lowest slot's become
# lazy.
LAZY_AFTER, LATE, FIRST, NAP_MS, AWAKE_MS = 64, 2, 1, 5, 50

# `frame`: what is left of the frame begun, and what was sent in all; when the log was last seen growing, and how late
# acknowledgements come (the reading half's); the rest is for system calls
HEADER_LEFT, BODY_AT, BODY_LEFT, TRANSFERRED, GREW_MS, LATE_ACKS, POSITION, PIECES_AT = 0, 1, 2, 3, 4, 5, 6, 7
FRAME_WORDS = PIECES_AT + 2 * PIECE_WORDS
# `segment`: the open one, or -1 as its base
SEGMENT_BASE, SEGMENT_FD, SEGMENT_ADDRESS, SEGMENT_WORDS = 0, 1, 2, 3
# `places`: indices of the counters, the states of lower slots behind them
END, NEXT_AT, TRANSFERRED_AT, ACK_AT, LAST_READ_AT, CONFIRM, BELL, WAKE, HELD_AT, PLACES = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9

# What `transfer` came to; below zero: -errno
BEHIND, IN_STEP, NEEDS_SEGMENT, LOOK, SHORT_FILE = 0, 1, 2, 3, 4
TRANSFERRING = 2  # a slot's state: its slave has made itself known
NOTHING = -1  # as a frame's size: none is due


class Line(NamedTuple):
    """One connection as its kernels see it: shared counters, the protocol's words, and memory of its own."""

    counters: Words
    places: Words
    connection: Words
    flow: Words
    frame: Words
    segment: Words
    header: Bytes


def line_of(board: Board, slot: int, connection: HaConnection) -> Line:
    """The line of the slave in a slot: no frame begun, no segment open."""
    words = board.ha[slot]
    places: Words = np.zeros(PLACES + slot, np.int64)
    places[PLACES:] = [lower.state.index for lower in board.ha[:slot]]
    for place, cursor in (
        (END, board.max_physical_offset), (NEXT_AT, words.next_transfer_offset),
        (TRANSFERRED_AT, words.transferred_bytes), (ACK_AT, words.slave_ack_offset), (LAST_READ_AT, words.last_read_ms),
        (CONFIRM, board.confirm_offset), (BELL, board.ack_bell), (WAKE, words.wake),
        (HELD_AT, words.held_offset),
    ):  # fmt: skip
        places[place] = cursor.index
    frame: Words = np.zeros(FRAME_WORDS, np.int64)
    segment: Words = np.full(SEGMENT_WORDS, -1)
    header: Bytes = np.zeros(FRAME_HEADER_BYTES, np.uint8)
    return Line(board.counters.words, places, connection.words, connection.flow.words, frame, segment, header)


@inlined
def _turn_window(flow: Words, now_ms: int) -> None:
    elapsed_ms = now_ms - flow[WINDOW_BEGINS_MS]
    if elapsed_ms < 0 or elapsed_ms >= WINDOW_MS:
        flow[IN_LAST_WINDOW] = flow[IN_WINDOW] if 0 <= elapsed_ms < 2 * WINDOW_MS else 0
        flow[IN_WINDOW] = 0
        flow[WINDOW_BEGINS_MS] = now_ms


@kernel
def next_frame(connection: Words, flow: Words, limits: ConnectionLimits, now_ms: int, end: int) -> tuple[int, int]:
    """HaConnection.next_frame: (where it begins, its size), the size NOTHING when none is due."""
    if connection[NEXT_OFFSET] < 0:
        request = load_acquire(connection, REQUEST_OFFSET)
        if request < 0:
            return 0, NOTHING
        connection[NEXT_OFFSET] = end - end % limits.segment_bytes if request == 0 else request
    start = connection[NEXT_OFFSET]
    if now_ms - connection[LAST_WRITE_MS] > limits.send_heartbeat_interval_ms:
        connection[LAST_WRITE_MS] = now_ms
        return start, 0
    if start == end:
        return start, NOTHING
    _turn_window(flow, now_ms)
    size = min(end - start, limits.segment_bytes - start % limits.segment_bytes, limits.transfer_batch_bytes)
    size = min(size, max(flow[LIMIT] - flow[IN_WINDOW], 0))
    if size == 0:
        return start, NOTHING
    flow[IN_WINDOW] += size
    connection[LAST_WRITE_MS] = now_ms
    connection[NEXT_OFFSET] = start + size
    return start, size


@kernel
def believes(connection: Words, buffer: Bytes, count: int) -> int:
    """The last acknowledgement of `count` bytes of reports; -1 when HaConnection must judge them, one by one."""
    if count % REPORT_BYTES != 0 or connection[REQUEST_OFFSET] == UNKNOWN_OFFSET or connection[PROVES_FROM] != 0:
        return -1
    sent = max(load_acquire(connection, NEXT_OFFSET), connection[REQUEST_OFFSET])
    acked = connection[ACK_OFFSET]
    for at in range(0, count, REPORT_BYTES):
        reported = load_be64(buffer, at)
        if reported > sent or reported < acked:
            return -1
        acked = reported
    return acked


@kernel
def _write(line: Line, fd: int) -> int:
    """What is left of a frame; bytes written this time, or -errno. A small one is one call, a large one not copied."""
    frame, segment, header = line.frame, line.segment, line.header
    left, body_left = frame[HEADER_LEFT], frame[BODY_LEFT]
    header_at = address_of(header, 0) + FRAME_HEADER_BYTES - left
    if left and 0 < body_left <= ONE_CALL_BYTES:
        frame[PIECES_AT + ADDRESS], frame[PIECES_AT + LENGTH] = header_at, left
        frame[PIECES_AT + PIECE_WORDS + ADDRESS] = segment[SEGMENT_ADDRESS] + frame[BODY_AT]
        frame[PIECES_AT + PIECE_WORDS + LENGTH] = body_left
        written = writev(fd, address_of(frame, PIECES_AT), 2)
    elif left:
        written = send(fd, header_at, left, MSG_MORE if body_left else 0)
    else:
        frame[POSITION] = frame[BODY_AT]
        written = sendfile(fd, segment[SEGMENT_FD], address_of(frame, POSITION), body_left)
    if written > 0:
        frame[TRANSFERRED] += written
        of_header = min(written, left)
        frame[HEADER_LEFT] -= of_header
        frame[BODY_AT] += written - of_header
        frame[BODY_LEFT] -= written - of_header
    return written


@kernel
def _begin(line: Line, limits: ConnectionLimits, offset: int, size: int) -> bool:
    """Promise a frame; whether its segment is open. The counter moves first: no ack may come before it."""
    frame = line.frame
    store_be64(line.header, 0, offset)
    store_be32(line.header, 8, size)
    frame[HEADER_LEFT], frame[BODY_LEFT] = FRAME_HEADER_BYTES, size
    if size == 0:
        return True
    store_release(line.counters, line.places[NEXT_AT], line.connection[NEXT_OFFSET])
    frame[BODY_AT] = offset % limits.segment_bytes
    return offset - frame[BODY_AT] == line.segment[SEGMENT_BASE]


@kernel
def sleep(line: Line, end: int, now_ms: int, wait_ms: int) -> bool:
    """Until the log is longer than `end`, or for `wait_ms`, or while it grows and nobody waits for this slave, for a
    nap. False: the time is over, or somebody wants the interpreter."""
    counters, places, frame = line.counters, line.places, line.frame
    if frame[LATE_ACKS] < LAZY_AFTER or now_ms - frame[GREW_MS] >= AWAKE_MS:
        return await_change(counters, places[END], end, wait_ms * NS_PER_MS) != end
    seen = load_acquire(counters, places[WAKE])
    if await_change(counters, places[WAKE], seen, min(NAP_MS, wait_ms) * NS_PER_MS) != seen:
        return False
    if load_acquire(counters, places[CONFIRM]) < end:
        frame[LATE_ACKS] = 0  # of what we sent before the nap, nobody else has had all
    return wait_ms > NAP_MS


@kernel
def transfer(line: Line, limits: ConnectionLimits, fd: int, now_ms: int, frames: int, timeout_ms: int) -> int:
    """Write what the log has, `frames` at most; then sleep until it grows, for `timeout_ms` in all.

    With a `timeout_ms` the clock is looked at in here; without, the time is `now_ms`. Returns why it ended.
    """
    frame, connection, end_at = line.frame, line.connection, line.places[END]
    until_ms = monotonic_ms() + timeout_ms
    while frames > 0:
        if timeout_ms:
            now_ms = monotonic_ms()
        if now_ms - connection[LAST_READ_MS] > limits.housekeeping_interval_ms:
            return LOOK  # also in the middle of a frame: who reads nothing any more leaves one behind a full buffer
        if frame[HEADER_LEFT] + frame[BODY_LEFT] == 0:
            end = load_acquire(line.counters, end_at)
            offset, size = next_frame(connection, line.flow, limits, now_ms, end)
            if size == NOTHING:
                heartbeat_ms = connection[LAST_WRITE_MS] + limits.send_heartbeat_interval_ms + 1 - now_ms
                wait_ms = min(until_ms - now_ms, heartbeat_ms)
                if timeout_ms == 0 or wait_ms <= 0 or connection[NEXT_OFFSET] != end:
                    return IN_STEP
                if not sleep(line, end, now_ms, wait_ms):
                    return IN_STEP
                continue
            if size > 0:
                frame[GREW_MS] = now_ms
            if not _begin(line, limits, offset, size):
                return NEEDS_SEGMENT
        body_left = frame[BODY_LEFT]
        written = _write(line, fd)
        line.counters[line.places[TRANSFERRED_AT]] = frame[TRANSFERRED]
        if written <= 0:
            return written if written < 0 else SHORT_FILE
        if frame[HEADER_LEFT] + frame[BODY_LEFT] == 0:
            frames -= 1
        elif timeout_ms == 0 and frame[HEADER_LEFT] == 0 and frame[BODY_LEFT] < body_left:
            return BEHIND  # the buffer is full: the next turn brings its own time
        if timeout_ms and now_ms >= until_ms:
            return BEHIND
    return BEHIND


@inlined
def _note_order(line: Line, is_first: bool) -> None:
    """How late this slave's acknowledgements come, after one that was the first, or was not."""
    is_lowest = True
    for at in range(PLACES, line.places.size):
        is_lowest = is_lowest and line.counters[line.places[at]] != TRANSFERRING
    late = line.frame[LATE_ACKS]
    if not is_first:
        line.frame[LATE_ACKS] = min(late + LATE, LAZY_AFTER)
    elif is_lowest:
        line.frame[LATE_ACKS] = 0
    else:
        line.frame[LATE_ACKS] = max(late - FIRST, 0)


@kernel
def hear(line: Line, fd: int, buffer: Bytes, confirms: bool, fallbehind_bytes_max: int) -> int:
    """Believe and publish reports as they come; the bytes of `buffer` that HaConnection must judge, 0 at the end of
    the stream, or -errno. `confirms`: one slave is enough, so what it holds is confirmed.

    Who follows `ack_bell` is rung when its answer may be another: always, or, where this kernel confirms, when the
    slave was not in step.
    """
    counters, places, connection = line.counters, line.places, line.connection
    while True:
        count = recv(fd, address_of(buffer, 0), buffer.size, 0)
        if count <= 0:
            return count
        acked, before = believes(connection, buffer, count), connection[ACK_OFFSET]
        if acked < 0:
            return count
        now_ms = monotonic_ms()
        connection[LAST_READ_MS] = now_ms
        if acked != before:
            connection[ACK_OFFSET] = acked
            store_release(counters, places[HELD_AT], acked)
            publish(counters, places[ACK_AT], acked)
            if confirms:
                is_first = raise_to(counters, places[CONFIRM], acked)
                _note_order(line, is_first)
            if not confirms or load_acquire(counters, places[END]) - before >= fallbehind_bytes_max:
                ring(counters, places[BELL])
        counters[places[LAST_READ_AT]] = now_ms

