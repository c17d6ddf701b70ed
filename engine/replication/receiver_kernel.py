"""The receiver's loop, compiled: frames from the socket into the segment, our end published, then reported.

Implements: the usual case of HAClient's and DefaultHAClient's dispatchReadRequest (spec: ha-protocol, 4 slave side)
What came is read into a buffer that stays in the processor's cache, however many frames it holds; headers are judged as
`protocol/ha_client.py` does it, on the same words, and the bodies go into the file by one system call: into memory that
was never touched that is faster than through a mapping, which takes a fault a page and has to be populated before.
What is not usual is left to `protocol/ha_client.py` and `engine.replication.receiver`, with nothing changed.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from errno import EAGAIN, EINTR
from socket import MSG_DONTWAIT
from typing import NamedTuple

import numpy as np

from engine.board.cursors import Board
from engine.protocol.ha.client import (
    BODY_LEFT,
    FRAMES,
    HEAD,
    HEAD_BYTES,
    LAST_READ_MS,
    LAST_WRITE_MS,
    MAX_PHYSICAL,
    NOT_FOLLOWED,
    RECORD_LEFT,
    REPORTED,
    HaClient,
)
from engine.protocol.ha.wire import FRAME_HEADER_BYTES, REPORT_BYTES
from ipc.arrays import Bytes, Words
from ipc.compiled.atomics import address_of, monotonic_ms, publish, wall_clock_ms
from ipc.compiled.compiler import inlined, kernel
from ipc.compiled.memory import copy_bytes, load_be32, load_be64, store_be64
from ipc.compiled.system_calls import ADDRESS, LENGTH, PIECE_WORDS, recv, send, write_pieces
from store.message.record import BLANK_BYTES, BLANK_MAGIC, FIXED_BYTES, MAGIC_V1, MAGIC_V2

INBOX_BYTES = 512 * 1024
SMALL_BYTES = 16 * 1024  # a read that brought less has emptied the socket: another one would only say so
REPORT_AT_LATEST_BYTES = 1 << 20  # while more is waiting in the socket; else at once
PIECES_MAX = 512  # bodies in one system call (the kernel takes 1024)

# `held`: the inbox's bytes that are not taken yet; what came in all; what is published; whether the socket is empty
BEGIN, END, RECEIVED, PUBLISHED, IS_DRAINED, HELD_WORDS = 0, 1, 2, 3, 4, 5
# `places`: indices of the counters
END_AT, RECEIVED_AT, LAST_READ_AT, LAST_WRITE_AT, STORED_AT, PLACES = 0, 1, 2, 3, 4, 5

# What a kernel came to. Below zero: -errno of the socket, or of the file when DISK is added to it
DRAINED, MORE, NEEDS_SEGMENT, JUDGE, PEER_ENDED, UNREAD, UNFIT, DISK = 0, 1, 2, 3, 4, 5, 6, -10_000


class Line(NamedTuple):
    """The connection as its kernels see it: shared counters, the protocol's words, and memory of its own."""

    counters: Words
    places: Words
    client: Words
    held: Words
    inbox: Bytes
    pieces: Words
    report: Bytes


class Target(NamedTuple):
    """The open segment, empty (`end` 0) where there is none."""

    fd: int
    base: int
    end: int


NO_SEGMENT = Target(-1, 0, 0)


def line_of(board: Board, client: HaClient) -> Line:
    """A slave's line: nothing received yet, and published what the counters say."""
    words = board.ha_client
    places: Words = np.zeros(PLACES, np.int64)
    for place, cursor in (
        (END_AT, board.max_physical_offset), (RECEIVED_AT, words.transferred_bytes),
        (LAST_READ_AT, words.last_read_ms), (LAST_WRITE_AT, words.last_write_ms), (STORED_AT, board.store_timestamp_ms),
    ):  # fmt: skip
        places[place] = cursor.index
    held: Words = np.zeros(HELD_WORDS, np.int64)
    held[[PUBLISHED, RECEIVED]] = board.max_physical_offset.read(), words.transferred_bytes.read()
    inbox: Bytes = np.zeros(INBOX_BYTES, np.uint8)
    pieces: Words = np.zeros(PIECES_MAX * PIECE_WORDS, np.int64)
    report: Bytes = np.zeros(REPORT_BYTES, np.uint8)
    return Line(board.counters.words, places, client.words, held, inbox, pieces, report)


@kernel
def begins_frame(client: Words, inbox: Bytes, at: int, segment_bytes: int) -> bool:
    """HaClient._begin_frame of the header at `at`; False, with nothing changed, for what it must judge itself."""
    offset, body_bytes = load_be64(inbox, at), load_be32(inbox, at + 8)
    if client[MAX_PHYSICAL] == 0 or offset != client[MAX_PHYSICAL]:
        return False
    if body_bytes < 0 or body_bytes > segment_bytes - offset % segment_bytes:
        return False
    client[BODY_LEFT] = body_bytes
    client[FRAMES] += 1
    return True


@inlined
def _record_left(head: int, offset: int, segment_bytes: int) -> int:
    """What follows the head of the record at that offset, in bytes; -1 when it does not fit its segment."""
    size, magic, room = head >> 32, head & 0xFFFFFFFF, segment_bytes - offset % segment_bytes
    if magic == BLANK_MAGIC:
        return size - BLANK_BYTES if size == room else -1
    if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < FIXED_BYTES:
        return NOT_FOLLOWED  # the dispatcher says what it is
    return size - BLANK_BYTES if size <= room - BLANK_BYTES else -1


@kernel
def fitting(client: Words, inbox: Bytes, begin: int, size: int, segment_bytes: int) -> int:
    """How many of the next `size` bytes of a body may be taken: all, or those before a record that does not fit.

    Records are followed from head to head, however frames cut them; a head is as long as a blank record.
    """
    at, end, offset = begin, begin + size, client[MAX_PHYSICAL] - begin
    while at < end:
        if client[RECORD_LEFT] > 0:
            step = min(client[RECORD_LEFT], end - at)
            client[RECORD_LEFT] -= step
            at += step
            continue
        head, filled, start = client[HEAD], client[HEAD_BYTES], at
        while filled < BLANK_BYTES and at < end:
            head = (head << 8) | np.int64(inbox[at])
            at, filled = at + 1, filled + 1
        if filled < BLANK_BYTES:
            client[HEAD], client[HEAD_BYTES] = head, filled
            break
        left = _record_left(head, offset + at - BLANK_BYTES, segment_bytes)
        if left < 0:
            client[HEAD] = head
            return start - begin
        client[HEAD], client[HEAD_BYTES], client[RECORD_LEFT] = 0, 0, left
    return size


@kernel
def take(line: Line, target: Target, segment_bytes: int) -> int:
    """Put what the inbox holds where it belongs, and publish it: MORE when all is taken."""
    client, held, pieces = line.client, line.held, line.pieces
    start, count, outcome = client[MAX_PHYSICAL], 0, MORE
    while held[BEGIN] < held[END] and count < PIECES_MAX:
        if client[BODY_LEFT] > 0:
            if client[MAX_PHYSICAL] >= target.end or client[MAX_PHYSICAL] < target.base:
                outcome = NEEDS_SEGMENT
                break
            due = min(client[BODY_LEFT], held[END] - held[BEGIN])
            size = fitting(client, line.inbox, held[BEGIN], due, segment_bytes)
            if size < due:
                outcome = UNFIT
            if size == 0:
                break
            pieces[count * PIECE_WORDS + ADDRESS] = address_of(line.inbox, held[BEGIN])
            pieces[count * PIECE_WORDS + LENGTH] = size
            count += 1
            held[BEGIN] += size
            client[BODY_LEFT] -= size
            client[MAX_PHYSICAL] += size
            if outcome == UNFIT:
                break
        else:
            if held[END] - held[BEGIN] < FRAME_HEADER_BYTES:
                break
            if not begins_frame(client, line.inbox, held[BEGIN], segment_bytes):
                outcome = JUDGE
                break
            held[BEGIN] += FRAME_HEADER_BYTES
    if count:
        failed = write_pieces(target.fd, pieces, address_of(pieces, 0), count, start - target.base)
        if failed:
            return failed + DISK
        log_end = client[MAX_PHYSICAL] - client[HEAD_BYTES]
        if held[PUBLISHED] != log_end:
            held[PUBLISHED] = log_end
            publish(line.counters, line.places[END_AT], log_end)
    if outcome == MORE and count == PIECES_MAX:
        return UNREAD
    return outcome


@kernel
def make_room(line: Line) -> None:
    """What the inbox still holds, the beginning of a header, to its front."""
    held = line.held
    left = held[END] - held[BEGIN]
    if left:
        copy_bytes(line.inbox, 0, line.inbox, held[BEGIN], left)
    held[BEGIN], held[END] = 0, left


@kernel
def _read(line: Line, fd: int, flags: int) -> int:
    """Into the inbox what the socket has; the bytes, 0 at the end of the stream, or -errno."""
    held = line.held
    make_room(line)
    room = line.inbox.size - held[END]
    count = recv(fd, address_of(line.inbox, held[END]), room, flags)
    held[IS_DRAINED] = 1 if count < min(room, SMALL_BYTES) else 0
    if count > 0:
        held[END] += count
        held[RECEIVED] += count
        line.counters[line.places[RECEIVED_AT]] = held[RECEIVED]
    return count


@kernel
def _report(line: Line, fd: int, now_ms: int) -> int:
    """HaClient.report, when our end grew since the last one: 0, or -errno."""
    client = line.client
    log_end = client[MAX_PHYSICAL] - client[HEAD_BYTES]
    if client[REPORTED] == log_end or log_end != line.held[PUBLISHED]:
        return 0
    client[REPORTED] = log_end
    client[LAST_WRITE_MS] = now_ms
    store_be64(line.report, 0, log_end)
    sent = send(fd, address_of(line.report, 0), REPORT_BYTES, 0)
    line.counters[line.places[LAST_WRITE_AT]] = now_ms
    return 0 if sent == REPORT_BYTES else min(sent, -EAGAIN)


@kernel
def receive(line: Line, target: Target, segment_bytes: int, fd: int, now_ms: int, bytes_max: int, sleep_ms: int) -> int:
    """Take in what comes, `bytes_max` at most; sleep between, for `sleep_ms` in all (the socket has a time-out).

    With a `sleep_ms` the clock is looked at in here; without, the time is `now_ms`. Returns why it ended.
    """
    held, client, has_read = line.held, line.client, False
    if sleep_ms:
        now_ms = monotonic_ms()
    until_ms, until_bytes = now_ms + sleep_ms, held[RECEIVED] + bytes_max
    while True:
        outcome = take(line, target, segment_bytes)
        is_due = held[IS_DRAINED] != 0 or client[MAX_PHYSICAL] - client[REPORTED] >= REPORT_AT_LATEST_BYTES
        if is_due and outcome != JUDGE and outcome > DISK:
            failed = _report(line, fd, now_ms)
            if failed:
                return failed
        if outcome == UNREAD:
            continue
        if outcome != MORE:
            return outcome
        is_over = held[RECEIVED] >= until_bytes or (sleep_ms != 0 and now_ms >= until_ms)
        if has_read and (is_over or (sleep_ms == 0 and held[IS_DRAINED] != 0)):
            return DRAINED if held[IS_DRAINED] else MORE
        waits, has_read = sleep_ms != 0 and held[IS_DRAINED] != 0, True
        count = _read(line, fd, 0 if waits else MSG_DONTWAIT)
        if count == 0:
            return PEER_ENDED
        if sleep_ms:
            now_ms = monotonic_ms()
        if count > 0:
            client[LAST_READ_MS] = now_ms
            line.counters[line.places[LAST_READ_AT]] = now_ms
            line.counters[line.places[STORED_AT]] = wall_clock_ms()
        elif count != -EAGAIN and count != -EINTR:
            return count
        elif waits:
            return DRAINED
