"""The master's side of one slave: which frame comes next, and whether a report is to be believed.

Implements: HAConnection.WriteSocketService and ReadSocketService without their sockets
spec: ha-protocol, 3 master side, 13 edge cases

Two threads use one object, each its own half, and each of its words has one writer:
  reading half (`receive`)    slave_request_offset, start_offset, slave_ack_offset, flushed_offset, proves_from,
                              last_read_ms, acks_rejected
  writing half (`next_frame`) next_transfer_offset, last_write_ms
`next_transfer_offset` moves before the frame's first byte is written, so an acknowledgement never arrives before its
bytes count as sent. What is decided for every frame and every report is compiled, in connection_kernel; the sender's
loops call the same functions, and what is not usual is decided here.
RocketMQ believes any number a slave sends (5.x), or any below its own end (4.9); slipstream believes what this
connection sent. A slave that cannot be served sees its connection closed, for a named reason, not heartbeats.

A first report is a position, and no proof: anybody may name one. What a slave is shown to hold (`held_offset`, which
alone confirms puts) is what of it was known before, and what it acknowledged of the bytes that were sent from there on:
  known_offset   the end of what no put of this broker waits for (`recovered_offset`: its log when it started), or of
                 what an earlier connection of the same slave was sent; up to there its first report counts at once.
                 An empty slave has nothing any more of what it was sent before
  proves_from    where this connection's bytes begin, while a put may wait for some before them that nobody confirmed:
                 acknowledgements do not count then. Over once these are confirmed, or after slaveTimeout, when no put
                 that was there at the first report waits any longer
"""

from __future__ import annotations

import numpy as np

from engine.protocol.ha import connection_kernel
from engine.protocol.ha.connection_kernel import (
    NOTHING,
    UNKNOWN_OFFSET,
    ConnectionLimits,
    ConnectionWord,
    ack_fault,
    sent_offset,
    take_acks,
)
from engine.protocol.ha.flow_monitor import FlowMonitor
from engine.protocol.ha.hello import MasterGreeting, WordKind, is_of_ours
from engine.protocol.ha.opening import ALL_THERE_IS, FROM_LAST_SEGMENT
from engine.protocol.ha.wire import LOG_OFFSET_MAX, REPORT, REPORT_BYTES, CloseReason, Frame, OwnWord, PeerError
from engine.protocol.remoting.frame import FRAME_BYTES_MAX
from ipc.arrays import Words


def is_of_a_slave(offset: int, max_physical_offset: int) -> bool:
    """Whether a first report can be a position in a log at all, this master's or another's."""
    if 0 <= offset <= max_physical_offset:
        return True
    return 0 <= offset <= LOG_OFFSET_MAX and not _begins_remoting(offset)


def _begins_remoting(first_bytes: int) -> bool:
    """A request of RocketMQ's clients: its length, the kind of its header, the header's length."""
    length, kind, header_bytes = first_bytes >> 32, first_bytes >> 24 & 0xFF, first_bytes & 0xFFFFFF
    return kind <= 1 and 0 < header_bytes <= length - 4 and length <= FRAME_BYTES_MAX


def transfer_start(
    request: int, min_physical_offset: int, max_physical_offset: int, segment_bytes: int, start_from_min: bool = False
) -> int:
    """Return where a slave's transfer begins.

    An empty one (0) gets the segment that holds the end, as RocketMQ does it, or with haStartFromMin all that there is.
    """
    if request == FROM_LAST_SEGMENT and start_from_min:
        return min_physical_offset
    if request == FROM_LAST_SEGMENT:
        return max_physical_offset - max_physical_offset % segment_bytes
    return request


class HaConnection:
    """One slave's connection, from the accepted socket on."""

    slave_request_offset = OwnWord(ConnectionWord.REQUEST)
    slave_ack_offset = OwnWord(ConnectionWord.ACK)
    next_transfer_offset = OwnWord(ConnectionWord.NEXT)
    acks_rejected = OwnWord(ConnectionWord.REJECTED)
    last_read_ms = OwnWord(ConnectionWord.LAST_READ_MS)
    last_write_ms = OwnWord(ConnectionWord.LAST_WRITE_MS)
    proves_from = OwnWord(ConnectionWord.PROVES_FROM)
    start_offset = OwnWord(ConnectionWord.START)
    _is_judged = OwnWord(ConnectionWord.IS_JUDGED)

    def __init__(
        self,
        limits: ConnectionLimits,
        flow: FlowMonitor,
        now_ms: int,
        known_offset: int = 0,
        *,
        start_from_min: bool = False,
        counts_flushed: bool = False,
    ) -> None:
        """`counts_flushed`: only what the slave has on its disk is held; RocketMQ's slaves never say that."""
        self.limits = limits
        self.flow = flow
        self.known_offset, self.recovered_offset = known_offset, 0
        self.flushed_offset = UNKNOWN_OFFSET
        self.greeting: MasterGreeting | None = None
        self.outgoing = b""  # control frames, to be sent before any other
        self._start_from_min = start_from_min
        self._counts_flushed = counts_flushed
        self._reported_ms = now_ms  # the first report
        self.words: Words = np.zeros(len(ConnectionWord), np.int64)
        self.words[[ConnectionWord.REQUEST, ConnectionWord.ACK, ConnectionWord.NEXT]] = UNKNOWN_OFFSET
        self.words[[ConnectionWord.LAST_READ_MS, ConnectionWord.LAST_WRITE_MS]] = now_ms
        self.rest = b""  # the beginning of a report whose end has not come yet
        self._is_judged = int(counts_flushed)

    # reading half

    def meet(self, reports: bytes, greeting: MasterGreeting, now_ms: int) -> bool:
        """Return whether the first bytes are a Slipstream slave's; then ask who it is before it is served."""
        if not is_of_ours(reports):
            return False
        self.last_read_ms = now_ms
        self.greeting, self.outgoing = greeting, greeting.challenge()
        (self._asked_offset,) = REPORT.unpack_from(reports)
        return True

    @property
    def held_offset(self) -> int:
        """The end of what this slave is shown to hold."""
        counts = min(self.slave_ack_offset, self.known_offset) if self.proves_from else self.slave_ack_offset
        if self._counts_flushed:  # of what it says to have on disk, what it was sent here
            counts = min(counts, self.flushed_offset)
        return max(counts, 0)

    def receive(
        self, data: bytes, now_ms: int, min_physical_offset: int, max_physical_offset: int, confirm_offset: int = 0
    ) -> None:
        """Take in what the slave sent, cut anywhere. Raises PeerError for a report that cannot be true."""
        if not self.rest and take_acks(self.words, np.frombuffer(bytearray(data), np.uint8), len(data), now_ms) >= 0:
            return
        self.last_read_ms = now_ms
        data = self.rest + data
        whole = len(data) - len(data) % REPORT_BYTES
        self.rest = data[whole:]
        for at in range(0, whole, REPORT_BYTES):
            (reported_offset,) = REPORT.unpack_from(data, at)
            if reported_offset < 0 and self.greeting is not None:
                self._take_word(data[at : at + REPORT_BYTES])
            elif self.greeting is not None and self.slave_request_offset == UNKNOWN_OFFSET:
                continue  # it is still there: what it asks for is known, and it is served once it has said who it is
            elif self.slave_request_offset == UNKNOWN_OFFSET:
                self._accept_request(reported_offset, now_ms, min_physical_offset, max_physical_offset)
            else:
                self._accept_ack(reported_offset)
        self.look_at_proof(now_ms, confirm_offset)

    def serve(self, now_ms: int, min_physical_offset: int, max_physical_offset: int) -> None:
        """Begin to serve a Slipstream slave once it has said who it is and `outgoing` is sent. Raises PeerError."""
        has_said_who = self.greeting is not None and self.greeting.replica is not None
        if has_said_who and self.slave_request_offset == UNKNOWN_OFFSET and not self.outgoing:
            self._accept_request(self._asked_offset, now_ms, min_physical_offset, max_physical_offset)

    def _take_word(self, word: bytes) -> None:
        """Take a Slipstream slave's word that is not an offset: who it is, or what is on its disk. Raises PeerError."""
        assert self.greeting is not None
        if word[0] == WordKind.MESSAGE:
            self.outgoing += self.greeting.hear(word[1:])
        elif word[0] == WordKind.FLUSHED and self.slave_request_offset != UNKNOWN_OFFSET:
            self.flushed_offset = max(self.flushed_offset, int.from_bytes(word[1:], "big"))
        else:
            raise PeerError(CloseReason.HANDSHAKE, 0, f"a word of kind {word[0]:#x}")

    def look_at_proof(self, now_ms: int, confirm_offset: int) -> None:
        """Let acknowledgements count once nobody can wait any longer for what this connection did not send."""
        nobody_waits = not self.proof_is_due(now_ms)
        if self.proves_from <= confirm_offset or (nobody_waits and self.slave_ack_offset > self.proves_from):
            self.proves_from = 0

    def proof_is_due(self, now_ms: int) -> bool:
        """Whether what was acknowledged may come to count by the clock alone."""
        return self.proves_from != 0 and now_ms - self._reported_ms <= self.limits.slave_timeout_ms

    def _accept_request(self, offset: int, now_ms: int, min_physical_offset: int, max_physical_offset: int) -> None:
        if not is_of_a_slave(offset, max_physical_offset):
            raise PeerError(CloseReason.NOT_A_SLAVE, offset, f"it begins with {REPORT.pack(offset)!r}")
        asks_for_all = offset == ALL_THERE_IS and self.greeting is not None
        if offset > max_physical_offset and not asks_for_all:
            raise PeerError(CloseReason.REQUEST_ABOVE_END, offset, f"the master's log ends at {max_physical_offset}")
        if 0 < offset < min_physical_offset and not asks_for_all:
            raise PeerError(CloseReason.REQUEST_BELOW_MIN, offset, f"the master's log begins at {min_physical_offset}")
        start = (
            min_physical_offset
            if asks_for_all
            else transfer_start(
                offset, min_physical_offset, max_physical_offset, self.limits.segment_bytes, self._start_from_min
            )
        )
        if start > offset:  # it lacks what lies before, whatever earlier connections were sent
            self.known_offset = self.recovered_offset
        self.proves_from = start if start > self.known_offset else 0
        self.start_offset = start
        self._reported_ms = now_ms
        self.slave_ack_offset = 0 if asks_for_all else offset
        self.slave_request_offset = offset  # last: the writing half starts when it sees this one

    def _accept_ack(self, offset: int) -> None:
        acked_before, sent = self.slave_ack_offset, int(sent_offset(self.words))
        fault = ack_fault(offset, acked_before, sent)
        if fault != CloseReason.NONE:
            self.acks_rejected += 1
            raise PeerError(fault, offset, f"sent up to {sent}, acknowledged {acked_before} before")
        self.slave_ack_offset = offset

    def is_silent(self, now_ms: int) -> bool:
        """Whether the slave said nothing for so long that it must be dropped."""
        return bool(connection_kernel.is_silent(self.words, self.limits, now_ms))

    # writing half

    def next_frame(self, now_ms: int, max_physical_offset: int) -> Frame | None:
        """The frame to write now: a heartbeat, bytes of the log, or None. What is returned must be sent whole."""
        start, size = connection_kernel.next_frame(
            self.words, self.flow.words, self.limits, now_ms, max_physical_offset
        )
        return None if size == NOTHING else Frame(start, size)

    def wait_ms(self, now_ms: int) -> int:
        """Return how long the writing half may sleep while the log does not grow.

        It is the time to the next heartbeat or flow window.
        """
        if self.next_transfer_offset < 0:
            return self.limits.housekeeping_interval_ms
        heartbeat_ms = int(connection_kernel.heartbeat_wait_ms(self.words, self.limits, now_ms))
        flow_ms = self.flow.wait_ms(now_ms)
        return max(min(heartbeat_ms, flow_ms) if flow_ms else heartbeat_ms, 0)
