"""Which frame a master sends next, and which reports it believes: decided here and nowhere else, compiled.

Implements: HAConnection's WriteSocketService and ReadSocketService, the usual case (spec: ha-protocol, 3 master side)
`HaConnection`, on which days of faults are played in virtual time, and the sender's loops over sockets
(engine/replication/sender_kernel.py) call the same functions on the same words.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from engine.protocol.ha.flow_kernel import FlowWord, allowed_bytes, turn_window
from engine.protocol.ha.wire import REPORT_BYTES, CloseReason
from ipc.arrays import Bytes, Words
from ipc.compiled.atomics import load_acquire
from ipc.compiled.kernels import bare_kernel
from ipc.compiled.memory import load_be64

UNKNOWN_OFFSET = -1
NOTHING = -1  # as a frame's size: none is due; as what reports came to: not for these functions


class ConnectionWord(IntEnum):
    """The words of an HaConnection; its docstring says who writes which."""

    REQUEST = 0
    ACK = 1
    NEXT = 2
    REJECTED = 3
    LAST_READ_MS = 4
    LAST_WRITE_MS = 5
    PROVES_FROM = 6
    START = 7  # where the first frame begins; published before REQUEST
    IS_JUDGED = 8  # each report goes to HaConnection: the slave's disk counts, not its memory


class ConnectionLimits(NamedTuple):
    """The settings of a connection; `segment_bytes` is mappedFileSizeCommitLog."""

    segment_bytes: int
    transfer_batch_bytes: int
    send_heartbeat_interval_ms: int
    housekeeping_interval_ms: int
    slave_timeout_ms: int


@bare_kernel
def next_batch(start: int, end: int, segment_bytes: int, batch_bytes_max: int) -> int:
    """Return how many bytes to send from `start`.

    A batch never crosses a segment's end, because sendfile reads one file.
    """
    return min(end - start, segment_bytes - start % segment_bytes, batch_bytes_max)


@bare_kernel
def next_frame(connection: Words, flow: Words, limits: ConnectionLimits, now_ms: int, end: int) -> tuple[int, int]:
    """The frame to write now: where it begins, and its size: 0 for a heartbeat, NOTHING when none is due."""
    if connection[ConnectionWord.NEXT] < 0:
        if load_acquire(connection, ConnectionWord.REQUEST) < 0:
            return 0, NOTHING
        connection[ConnectionWord.NEXT] = connection[ConnectionWord.START]
    start = connection[ConnectionWord.NEXT]
    if heartbeat_wait_ms(connection, limits, now_ms) <= 0:
        connection[ConnectionWord.LAST_WRITE_MS] = now_ms
        return start, 0
    if start == end:
        return start, NOTHING
    turn_window(flow, now_ms)
    size = min(next_batch(start, end, limits.segment_bytes, limits.transfer_batch_bytes), allowed_bytes(flow))
    if size == 0:
        return start, NOTHING
    flow[FlowWord.IN_WINDOW] += size
    connection[ConnectionWord.LAST_WRITE_MS] = now_ms
    connection[ConnectionWord.NEXT] = start + size
    return start, size


@bare_kernel
def heartbeat_wait_ms(connection: Words, limits: ConnectionLimits, now_ms: int) -> int:
    """Return how long until a heartbeat is due, when nothing is sent meanwhile; 0 or less: it is."""
    return connection[ConnectionWord.LAST_WRITE_MS] + limits.send_heartbeat_interval_ms + 1 - now_ms


@bare_kernel
def is_silent(connection: Words, limits: ConnectionLimits, now_ms: int) -> bool:
    """Whether the slave said nothing for so long that it must be dropped."""
    return now_ms - connection[ConnectionWord.LAST_READ_MS] > limits.housekeeping_interval_ms


@bare_kernel
def sent_offset(connection: Words) -> int:
    """The end of what a slave may acknowledge: what it began with, and what was sent to it since."""
    return max(load_acquire(connection, ConnectionWord.NEXT), connection[ConnectionWord.REQUEST])


@bare_kernel
def ack_fault(reported: int, acked_before: int, sent: int) -> CloseReason:
    """Return why an acknowledgement cannot be true; NONE when it can."""
    if reported > sent:
        return CloseReason.ACK_NOT_SENT
    if reported < acked_before:
        return CloseReason.ACK_FELL
    return CloseReason.NONE


@bare_kernel
def take_acks(connection: Words, reports: Bytes, count: int, now_ms: int) -> int:
    """Believe `count` bytes of reports; the last of them. NOTHING, and nothing changed, when HaConnection must look at
    each: a first report or one that was cut, one that cannot be true, or while acknowledgements do not count."""
    is_special = connection[ConnectionWord.REQUEST] == UNKNOWN_OFFSET or connection[ConnectionWord.IS_JUDGED] != 0
    if is_special or count % REPORT_BYTES != 0 or connection[ConnectionWord.PROVES_FROM] != 0:
        return NOTHING
    sent, acked = sent_offset(connection), connection[ConnectionWord.ACK]
    for at in range(0, count, REPORT_BYTES):
        reported = load_be64(reports, at)
        if ack_fault(reported, acked, sent) != CloseReason.NONE:
            return NOTHING
        acked = reported
    connection[ConnectionWord.LAST_READ_MS] = now_ms
    connection[ConnectionWord.ACK] = acked
    return acked
