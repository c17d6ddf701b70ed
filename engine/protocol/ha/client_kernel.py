"""Which frame a slave takes, which records fit, and what it reports: decided here and nowhere else, compiled.

Implements: HAClient's and DefaultHAClient's dispatchReadRequest, reportSlaveMaxOffset (spec: ha-protocol, 4 slave side)
`HaClient`, on which days of faults are played in virtual time, and the receiver's loop over a socket
(engine/replication/receiver_kernel.py) call the same functions on the same words.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from engine.protocol.ha.wire import LOG_OFFSET_MAX, CloseReason
from ipc.arrays import Bytes, Words
from ipc.compiled.kernels import bare_kernel, inlined
from ipc.compiled.memory import load_be32, load_be64
from store.message.record import BLANK_BYTES, BLANK_MAGIC, FIXED_BYTES, MAGIC_V1, MAGIC_V2

NOT_FOLLOWED = 1 << 62  # as RECORD_LEFT: where records begin is not known
NOTHING = -1  # as a report: none is due; as ANNOUNCED: this connection's master has not said where an empty log begins


class ClientWord(IntEnum):
    """The words of an HaClient."""

    MAX_PHYSICAL = 0
    REPORTED = 1
    BODY_LEFT = 2
    LAST_READ_MS = 3
    LAST_WRITE_MS = 4
    FRAMES = 5
    ANNOUNCED = 6
    # Of the records in the bodies: what is missing of the one begun, or of its head what is there (`HEAD`, so many
    # bytes).
    RECORD_LEFT = 7
    HEAD_BYTES = 8
    HEAD = 9
    IS_OPENING = 10  # the connection has just begun: `Opening` judges what comes


class ClientLimits(NamedTuple):
    """The settings of the slave's side; `segment_bytes` is mappedFileSizeCommitLog."""

    segment_bytes: int
    send_heartbeat_interval_ms: int
    housekeeping_interval_ms: int
    reconnect_interval_ms: int


@bare_kernel
def log_end(client: Words) -> int:
    """Return where the log ends for everybody else: not within the head of a record, which may yet be refused."""
    return client[ClientWord.MAX_PHYSICAL] - client[ClientWord.HEAD_BYTES]


@bare_kernel
def begin_frame(client: Words, offset: int, body_bytes: int, segment_bytes: int) -> CloseReason:
    """Judge a frame by its header and begin it: NONE, or why it cannot be taken, with nothing changed."""
    end, position = client[ClientWord.MAX_PHYSICAL], offset % segment_bytes
    if end != 0 and offset != end:
        return CloseReason.OFFSET_MISMATCH
    if offset < 0 or body_bytes < 0 or body_bytes > segment_bytes - position:
        return CloseReason.BODY_SIZE
    if end == 0:  # An empty log begins where the master's bytes do. A heartbeat only announces that: it begins nothing.
        if position != 0:
            return CloseReason.UNALIGNED_START
        announced = client[ClientWord.ANNOUNCED]
        if offset > LOG_OFFSET_MAX or (announced != NOTHING and offset != announced):
            return CloseReason.IMPLAUSIBLE_START
        client[ClientWord.ANNOUNCED] = offset
        if body_bytes:
            client[ClientWord.MAX_PHYSICAL] = offset
    client[ClientWord.BODY_LEFT] = body_bytes
    client[ClientWord.FRAMES] += 1
    return CloseReason.NONE


@bare_kernel
def goes_on(client: Words, inbox: Bytes, at: int, segment_bytes: int) -> bool:
    """Begin the frame whose header lies at `at`; False, with nothing changed, when HaClient must say more: it begins an
    empty log, or cannot be taken."""
    if client[ClientWord.MAX_PHYSICAL] == 0:
        return False
    offset, body_bytes = load_be64(inbox, at), load_be32(inbox, at + 8)
    return begin_frame(client, offset, body_bytes, segment_bytes) == CloseReason.NONE


@bare_kernel
def take_body(client: Words, count: int) -> None:
    """Note that bytes of a frame's body are in the log."""
    client[ClientWord.BODY_LEFT] -= count
    client[ClientWord.MAX_PHYSICAL] += count


@inlined
def _record_left(head: int, offset: int, segment_bytes: int) -> int:
    """Return what follows the head of the record at that offset, in bytes; -1 when it does not fit its segment."""
    size, magic, room = head >> 32, head & 0xFFFFFFFF, segment_bytes - offset % segment_bytes
    if magic == BLANK_MAGIC:
        return size - BLANK_BYTES if size == room else -1
    if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < FIXED_BYTES:
        return NOT_FOLLOWED  # the dispatcher says what it is
    return size - BLANK_BYTES if size <= room - BLANK_BYTES else -1


@bare_kernel
def bytes_that_fit(client: Words, inbox: Bytes, begin: int, size: int, segment_bytes: int) -> int:
    """Return how many of the next `size` bytes of a body may be taken: all, or those before a record that does not fit.

    Records are followed from head to head, however frames cut them; a head is as long as a blank record.
    """
    at, end, offset = begin, begin + size, client[ClientWord.MAX_PHYSICAL] - begin
    while at < end:
        if client[ClientWord.RECORD_LEFT] > 0:
            step = min(client[ClientWord.RECORD_LEFT], end - at)
            client[ClientWord.RECORD_LEFT] -= step
            at += step
            continue
        head, filled, start = client[ClientWord.HEAD], client[ClientWord.HEAD_BYTES], at
        while filled < BLANK_BYTES and at < end:
            head = (head << 8) | np.int64(inbox[at])
            at, filled = at + 1, filled + 1
        if filled < BLANK_BYTES:
            client[ClientWord.HEAD], client[ClientWord.HEAD_BYTES] = head, filled
            break
        left = _record_left(head, offset + at - BLANK_BYTES, segment_bytes)
        if left < 0:
            client[ClientWord.HEAD] = head
            return start - begin
        client[ClientWord.HEAD], client[ClientWord.HEAD_BYTES], client[ClientWord.RECORD_LEFT] = 0, 0, left
    return size


@bare_kernel
def next_report(client: Words, limits: ClientLimits, now_ms: int) -> int:
    """The end to report now, because it grew since the last report or we were silent for too long; else NOTHING."""
    if client[ClientWord.IS_OPENING] != 0:
        return NOTHING
    end = log_end(client)
    heartbeat_is_due = now_ms - client[ClientWord.LAST_WRITE_MS] > limits.send_heartbeat_interval_ms
    if client[ClientWord.REPORTED] == end and not heartbeat_is_due:
        return NOTHING
    client[ClientWord.REPORTED] = end
    client[ClientWord.LAST_WRITE_MS] = now_ms
    return end
