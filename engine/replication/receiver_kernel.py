"""The receiver's loop, compiled: frames from the socket into the segment, our end published, then reported.

Implements: the usual case of HAClient's and DefaultHAClient's dispatchReadRequest (spec: ha-protocol, 4 slave side)
What came is read into a buffer that stays in the processor's cache, however many frames it holds; headers, heads of
records and reports are decided in `engine/protocol/ha/client_kernel.py`, and the bodies go into the file by one system
call: into memory that was never touched that is faster than through a mapping, which takes a fault a page and has to be
populated before. What is not usual is left to `HaClient` and `engine.replication.receiver`, with nothing changed.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from enum import IntEnum
from errno import EAGAIN, EINTR
from socket import MSG_DONTWAIT
from typing import NamedTuple

import numpy as np

from engine.protocol.ha.client import HaClient
from engine.protocol.ha.client_kernel import (
    NOTHING,
    ClientLimits,
    ClientWord,
    bytes_that_fit,
    goes_on,
    log_end,
    next_report,
    take_body,
)
from engine.protocol.ha.wire import FRAME_HEADER_BYTES, REPORT_BYTES
from engine.shared_memory.cursors import BrokerCounters
from ipc.arrays import Bytes, Words
from ipc.compiled.atomics import address_of, monotonic_ms, publish, wall_clock_ms
from ipc.compiled.kernels import kernel
from ipc.compiled.memory import copy_bytes, store_be64
from ipc.compiled.system_calls import PIECE_WORDS, Piece, recv, send, write_pieces

INBOX_BYTES = 512 * 1024
SMALL_BYTES = 16 * 1024  # a read that brought less has emptied the socket: another one would only say so
REPORT_AT_LATEST_BYTES = 1 << 20  # while more is waiting in the socket; else at once
PIECES_MAX = 512  # bodies in one system call (the kernel takes 1024)


class HeldWord(IntEnum):
    """`Line.held`: the inbox's bytes that are not taken yet; what came in all; what is published; whether the socket is
    empty."""

    BEGIN = 0
    END = 1
    RECEIVED = 2
    PUBLISHED = 3
    IS_DRAINED = 4


class ReceiverCounter(IntEnum):
    """`Line.places`: indices of the counters."""

    END = 0
    RECEIVED = 1
    LAST_READ = 2
    LAST_WRITE = 3
    STORED = 4


class Outcome(IntEnum):
    """The outcome of a kernel. Below zero: -errno of the socket, or of the file when DISK is added to it."""

    DRAINED = 0
    MORE = 1
    NEEDS_SEGMENT = 2
    JUDGE = 3
    PEER_ENDED = 4
    UNREAD = 5
    UNFIT = 6
    DISK = -10_000


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
    """The open segment; empty (`end` 0) without one."""

    fd: int
    base: int
    end: int


NO_SEGMENT = Target(-1, 0, 0)


def line_of(counters: BrokerCounters, client: HaClient) -> Line:
    """A slave's line: nothing received yet, and published what the counters say."""
    words = counters.ha_client
    places: Words = np.zeros(len(ReceiverCounter), np.int64)
    for place, cursor in (
        (ReceiverCounter.END, counters.max_physical_offset), (ReceiverCounter.RECEIVED, words.transferred_bytes),
        (ReceiverCounter.LAST_READ, words.last_read_ms), (ReceiverCounter.LAST_WRITE, words.last_write_ms),
        (ReceiverCounter.STORED, counters.store_timestamp_ms),
    ):  # fmt: skip
        places[place] = cursor.index
    held: Words = np.zeros(len(HeldWord), np.int64)
    held[[HeldWord.PUBLISHED, HeldWord.RECEIVED]] = counters.max_physical_offset.read(), words.transferred_bytes.read()
    inbox: Bytes = np.zeros(INBOX_BYTES, np.uint8)
    pieces: Words = np.zeros(PIECES_MAX * PIECE_WORDS, np.int64)
    report: Bytes = np.zeros(REPORT_BYTES, np.uint8)
    return Line(counters.region.words, places, client.words, held, inbox, pieces, report)


@kernel
def take(line: Line, target: Target, segment_bytes: int) -> int:
    """Put what the inbox holds where it belongs, and publish it: MORE when all is taken."""
    client, held, pieces = line.client, line.held, line.pieces
    start, count, outcome = client[ClientWord.MAX_PHYSICAL], 0, Outcome.MORE
    while held[HeldWord.BEGIN] < held[HeldWord.END] and count < PIECES_MAX:
        if client[ClientWord.IS_OPENING] != 0:
            outcome = Outcome.JUDGE
            break
        if client[ClientWord.BODY_LEFT] > 0:
            if client[ClientWord.MAX_PHYSICAL] >= target.end or client[ClientWord.MAX_PHYSICAL] < target.base:
                outcome = Outcome.NEEDS_SEGMENT
                break
            due = min(client[ClientWord.BODY_LEFT], held[HeldWord.END] - held[HeldWord.BEGIN])
            size = bytes_that_fit(client, line.inbox, held[HeldWord.BEGIN], due, segment_bytes)
            if size < due:
                outcome = Outcome.UNFIT
            if size == 0:
                break
            pieces[count * PIECE_WORDS + Piece.ADDRESS] = address_of(line.inbox, held[HeldWord.BEGIN])
            pieces[count * PIECE_WORDS + Piece.LENGTH] = size
            count += 1
            held[HeldWord.BEGIN] += size
            take_body(client, size)
            if outcome == Outcome.UNFIT:
                break
        else:
            if held[HeldWord.END] - held[HeldWord.BEGIN] < FRAME_HEADER_BYTES:
                break
            if not goes_on(client, line.inbox, held[HeldWord.BEGIN], segment_bytes):
                outcome = Outcome.JUDGE
                break
            held[HeldWord.BEGIN] += FRAME_HEADER_BYTES
    if count:
        failed = write_pieces(target.fd, pieces, address_of(pieces, 0), count, start - target.base)
        if failed:
            return failed + Outcome.DISK
        # The bytes are in the file before the end says so, and the end before a report does: a report is a promise.
        end = log_end(client)
        if held[HeldWord.PUBLISHED] != end:
            held[HeldWord.PUBLISHED] = end
            publish(line.counters, line.places[ReceiverCounter.END], end)
    if outcome == Outcome.MORE and count == PIECES_MAX:
        return Outcome.UNREAD
    return outcome


@kernel
def make_room(line: Line) -> None:
    """Move what the inbox still holds, the beginning of a header, to its front."""
    held = line.held
    left = held[HeldWord.END] - held[HeldWord.BEGIN]
    if left:
        copy_bytes(line.inbox, 0, line.inbox, held[HeldWord.BEGIN], left)
    held[HeldWord.BEGIN], held[HeldWord.END] = 0, left


@kernel
def _read(line: Line, fd: int, flags: int) -> int:
    """Into the inbox what the socket has; the bytes, 0 at the end of the stream, or -errno."""
    held = line.held
    make_room(line)
    room = line.inbox.size - held[HeldWord.END]
    count = recv(fd, address_of(line.inbox, held[HeldWord.END]), room, flags)
    held[HeldWord.IS_DRAINED] = 1 if count < min(room, SMALL_BYTES) else 0
    if count > 0:
        held[HeldWord.END] += count
        held[HeldWord.RECEIVED] += count
        line.counters[line.places[ReceiverCounter.RECEIVED]] = held[HeldWord.RECEIVED]
    return count


@kernel
def _report(line: Line, limits: ClientLimits, fd: int, now_ms: int) -> int:
    """Return what HaClient.report says, of what is published: 0, or -errno."""
    if log_end(line.client) != line.held[HeldWord.PUBLISHED]:
        return 0
    reported = next_report(line.client, limits, now_ms)
    if reported == NOTHING:
        return 0
    store_be64(line.report, 0, reported)
    sent = send(fd, address_of(line.report, 0), REPORT_BYTES, 0)
    line.counters[line.places[ReceiverCounter.LAST_WRITE]] = now_ms
    return 0 if sent == REPORT_BYTES else min(sent, -EAGAIN)


@kernel
def receive(
    line: Line, target: Target, limits: ClientLimits, fd: int, now_ms: int, bytes_max: int, sleep_ms: int
) -> int:
    """Take in what comes, `bytes_max` at most; sleep between, for `sleep_ms` in all (the socket has a time-out).

    With a `sleep_ms` the clock is looked at in here; without, the time is `now_ms`. Returns why it ended.
    """
    held, client, has_read = line.held, line.client, False
    if sleep_ms:
        now_ms = monotonic_ms()
    until_ms, until_bytes = now_ms + sleep_ms, held[HeldWord.RECEIVED] + bytes_max
    while True:
        outcome = take(line, target, limits.segment_bytes)
        unreported_bytes = client[ClientWord.MAX_PHYSICAL] - client[ClientWord.REPORTED]
        is_due = held[HeldWord.IS_DRAINED] != 0 or unreported_bytes >= REPORT_AT_LATEST_BYTES
        if is_due and outcome != Outcome.JUDGE and outcome > Outcome.DISK:
            failed = _report(line, limits, fd, now_ms)
            if failed:
                return failed
        if outcome == Outcome.UNREAD:
            continue
        if outcome != Outcome.MORE:
            return outcome
        is_over = held[HeldWord.RECEIVED] >= until_bytes or (sleep_ms != 0 and now_ms >= until_ms)
        if has_read and (is_over or (sleep_ms == 0 and held[HeldWord.IS_DRAINED] != 0)):
            return Outcome.DRAINED if held[HeldWord.IS_DRAINED] else Outcome.MORE
        waits, has_read = sleep_ms != 0 and held[HeldWord.IS_DRAINED] != 0, True
        count = _read(line, fd, 0 if waits else MSG_DONTWAIT)
        if count == 0:
            return Outcome.PEER_ENDED
        if sleep_ms:
            now_ms = monotonic_ms()
        if count > 0:
            client[ClientWord.LAST_READ_MS] = now_ms
            line.counters[line.places[ReceiverCounter.LAST_READ]] = now_ms
            line.counters[line.places[ReceiverCounter.STORED]] = wall_clock_ms()
        elif count != -EAGAIN and count != -EINTR:
            return count
        elif waits:
            return Outcome.DRAINED
