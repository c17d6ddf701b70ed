"""The slave's side of replication: where the master's bytes belong in our log, and what to report back.

Implements: HAClient, DefaultHAClient without their sockets; HAConnectionState's ordinals
spec: ha-protocol, 4 slave side, 9 states, 14 traps

    READY --connected--> TRANSFER --closed--> READY        READY, TRANSFER --stopped--> SHUTDOWN

While a connection begins (`is_opening`), all that comes goes through `take`: `engine.protocol.ha.opening` compares it
with what we have. From then on the bytes of the log do not pass through this object. The role puts what
came into the log at `max_physical_offset`, at most `body_left` bytes, and what is behind that into `header_space`. It
tells by `received(count)` how many bytes these were. A cut may fall anywhere.
The offset of a frame is checked as soon as its header is whole, before its body, and for heartbeats too. The heads of
records are looked at, too (compiled, in client_kernel): one that does not fit a segment is not taken, nor any of it.
Ours reports at once after connecting; a 4.9 slave waits haSendHeartbeatInterval. A RocketMQ master accepts both.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from engine.protocol.ha import client_kernel
from engine.protocol.ha.client_kernel import NOT_FOLLOWED, NOTHING, ClientLimits, ClientWord
from engine.protocol.ha.hello import SlaveGreeting, Welcome, first_report
from engine.protocol.ha.opening import ALL_THERE_IS, NEVER, NO_TAIL, QUIET_MS, HistorySearch, Opening, Tail
from engine.protocol.ha.wire import (
    FRAME_HEADER,
    FRAME_HEADER_BYTES,
    LOG_OFFSET_MAX,
    REPORT,
    TRIED_SOON,
    CloseReason,
    Frame,
    OwnWord,
    PeerError,
)
from ipc.arrays import Words

FIRST_RECONNECT_PAUSE_MS = 50


class HaClientState(IntEnum):
    """RocketMQ's HAConnectionState; HANDSHAKE 1 and SUSPEND 3 belong to its controller mode."""

    READY = 0
    TRANSFER = 2
    SHUTDOWN = 4


def reconnect_pause_ms(reason: CloseReason, failures: int, limits: ClientLimits) -> int:
    """Return how long to wait before the next attempt; `failures` in a row brought no frame.

    A hung-up connection that worked is tried again at once: a sender that was killed is back within milliseconds, and
    producers wait for us. Who hangs up on us again and again, or sends what we cannot take, is asked ever more seldom.
    """
    if reason is CloseReason.HOUSEKEEPING:
        return 0
    if reason is CloseReason.HISTORY_SEARCH:
        return FIRST_RECONNECT_PAUSE_MS
    if reason in TRIED_SOON:
        return min(FIRST_RECONNECT_PAUSE_MS << min(failures, 16), limits.reconnect_interval_ms)
    return limits.reconnect_interval_ms


class HaClient:
    """A slave's connection to its master, over all reconnects. `max_physical_offset` is the end of the slave's log."""

    max_physical_offset = OwnWord(ClientWord.MAX_PHYSICAL)
    reported_offset = OwnWord(ClientWord.REPORTED)
    body_left = OwnWord(ClientWord.BODY_LEFT)
    last_read_ms = OwnWord(ClientWord.LAST_READ_MS)
    last_write_ms = OwnWord(ClientWord.LAST_WRITE_MS)
    _frames = OwnWord(ClientWord.FRAMES)
    _record_left = OwnWord(ClientWord.RECORD_LEFT)
    _announced = OwnWord(ClientWord.ANNOUNCED)  # where its master says that an empty log begins
    _head_bytes = OwnWord(ClientWord.HEAD_BYTES)
    _head = OwnWord(ClientWord.HEAD)
    is_opening = OwnWord(ClientWord.IS_OPENING)

    def __init__(
        self, limits: ClientLimits, max_physical_offset: int, record_left: int | None = 0, from_last_file: bool = True
    ) -> None:
        """`record_left`: how many bytes are missing of the log's last record; None where that is not known.

        `from_last_file`: an empty log begins with its master's last segment, as RocketMQ's does, not with its first.
        """
        self.limits = limits
        self.opening: Opening | None = None
        self._search = None if from_last_file else HistorySearch(limits.segment_bytes)
        self.words: Words = np.zeros(len(ClientWord), np.int64)
        self.words[[ClientWord.MAX_PHYSICAL, ClientWord.REPORTED]] = max_physical_offset, -1
        self._record_left = NOT_FOLLOWED if record_left is None else record_left
        self.state = HaClientState.READY
        self.reason = CloseReason.NONE
        self.failures = 0
        self._connect_at_ms = 0
        self._header = bytearray(FRAME_HEADER_BYTES)
        self._header_view = memoryview(self._header)
        self._header_filled = 0
        self._announced = NOTHING

    # connecting

    def may_connect(self, now_ms: int) -> bool:
        """Whether the pause after the last failure is over."""
        return self.state is HaClientState.READY and now_ms >= self._connect_at_ms

    def wait_ms(self, now_ms: int) -> int:
        """Return how long nothing will be due by the clock alone."""
        if self.state is HaClientState.READY:
            due_ms = self._connect_at_ms
        else:
            due_ms = 1 + min(
                self.last_write_ms + self._patience_ms,
                self.last_read_ms + self.limits.housekeeping_interval_ms,
                NEVER if self.opening is None else self.opening.quiet_since_ms + QUIET_MS - 1,
            )
        return max(due_ms - now_ms, 0)

    @property
    def _patience_ms(self) -> int:
        """Return how long we say nothing.

        RocketMQ 4.9.3 hangs up on the second report of who is ahead of it, before it says that it has nothing: so that
        comes late while a connection begins.
        """
        limits = self.limits
        if not self.is_opening:
            return limits.send_heartbeat_interval_ms
        return min(2 * limits.send_heartbeat_interval_ms, limits.housekeeping_interval_ms // 2)

    def connected(self, now_ms: int, tail: Tail = NO_TAIL, greeting: SlaveGreeting | None = None) -> None:
        """A connection stands; the first report is due at once. `tail`: what we have before `end`, to be compared."""
        assert self.state is HaClientState.READY
        self.state = HaClientState.TRANSFER
        self.reported_offset = -1
        self.max_physical_offset = self.end  # the head of a record that came in part comes again
        self._head_bytes = 0
        self.body_left = self._header_filled = self._frames = 0
        self._announced = NOTHING
        self.last_read_ms = self.last_write_ms = now_ms
        assert not tail.data or tail.end == self.end
        search = self._search if self.end == 0 else None
        opens = tail.data or search is not None or greeting is not None
        self.opening = Opening(self.limits.segment_bytes, tail, search, greeting, now_ms) if opens else None
        self.is_opening = int(self.opening is not None)

    @property
    def counts_flushed(self) -> bool:
        """Whether this connection's master waits until we have on disk what it sent."""
        return self._welcome is not None and self._welcome.counts_flushed

    @property
    def puts_wait(self) -> bool:
        """Whether puts there wait for that: what comes is to be flushed at once."""
        return self._welcome is not None and self._welcome.puts_wait

    @property
    def _welcome(self) -> Welcome | None:
        greeting = None if self.opening is None else self.opening.greeting
        return None if greeting is None else greeting.welcome

    def seen_as(self, reason: CloseReason) -> CloseReason:
        """The reason as far as this side can tell: a master that hangs up before its first frame refuses us."""
        refused = reason is CloseReason.PEER_CLOSED and self.state is HaClientState.TRANSFER and not self._frames
        return CloseReason.REFUSED if refused else reason

    def closed(self, reason: CloseReason, now_ms: int) -> None:
        """The connection ended, or was not to be had; the pause before the next begins."""
        self.reason = reason
        if reason is CloseReason.STOPPED:
            self.state = HaClientState.SHUTDOWN
            return
        self.state = HaClientState.READY
        self.failures = 0 if self._frames else self.failures + 1
        self._frames = 0
        self._connect_at_ms = now_ms + reconnect_pause_ms(reason, self.failures, self.limits)

    # opening

    def take(self, data: memoryview, now_ms: int) -> int:
        """Take what came while the connection begins; how many bytes that were. Raises PeerError."""
        opening = self.opening
        assert opening is not None and self.is_opening
        self.last_read_ms = now_ms
        taken = opening.take(data, now_ms)
        self._frames = opening.frames
        if opening.first is not None:
            first, opening.first = opening.first, None
            self._begin_log(first)
        if opening.is_over:
            self.is_opening = 0
            if opening.tail.data:
                self.body_left = opening.rest_bytes
        return taken

    def _begin_log(self, frame: Frame) -> None:
        """An empty log begins; with byte 1 where the master was asked for all it has: byte 0 is a size's first."""
        if self._search is None or frame.physical_offset != ALL_THERE_IS:
            self._begin_frame(frame)
            return
        if not 0 < frame.body_bytes < self.limits.segment_bytes:
            raise PeerError(CloseReason.BODY_SIZE, ALL_THERE_IS, self._detail(CloseReason.BODY_SIZE, frame.body_bytes))
        self.max_physical_offset = ALL_THERE_IS
        self._head, self._head_bytes, self._record_left = 0, ALL_THERE_IS, 0
        self.body_left = frame.body_bytes

    # receiving

    @property
    def end(self) -> int:
        """Return where the log ends for everybody else: not within the head of a record, which may yet be refused."""
        return int(client_kernel.log_end(self.words))

    def unfit(self) -> PeerError:
        """The error of a record or blank record, beginning at `end`, that does not fit the segment that it lies in."""
        room = self.limits.segment_bytes - self.end % self.limits.segment_bytes
        detail = f"{self._head >> 32} bytes begin where a segment of {self.limits.segment_bytes} has {room} left"
        return PeerError(CloseReason.SEGMENT_SIZE, self.end, detail)

    @property
    def header_space(self) -> memoryview:
        """Return where the bytes of the next header that are still missing belong."""
        return self._header_view[self._header_filled :]

    def received(self, count: int, now_ms: int) -> None:
        """`count` bytes came: the rest of the body first, then of the next header. Raises PeerError."""
        assert 0 < count <= self.body_left + FRAME_HEADER_BYTES - self._header_filled
        self.last_read_ms = now_ms
        body_bytes = min(count, self.body_left)
        client_kernel.take_body(self.words, body_bytes)
        self._header_filled += count - body_bytes
        if self._header_filled == FRAME_HEADER_BYTES:
            self._header_filled = 0
            self._begin_frame(Frame(*FRAME_HEADER.unpack(self._header)))

    def _begin_frame(self, frame: Frame) -> None:
        reason = client_kernel.begin_frame(self.words, *frame, self.limits.segment_bytes)
        if reason != CloseReason.NONE:
            raise PeerError(reason, frame.physical_offset, self._detail(reason, frame.body_bytes))

    def _detail(self, reason: CloseReason, body_bytes: int) -> str:
        if reason is CloseReason.OFFSET_MISMATCH:
            return f"this log ends at {self.max_physical_offset}"
        if reason is CloseReason.BODY_SIZE:
            return f"{body_bytes} bytes announced, segments have {self.limits.segment_bytes}"
        if reason is CloseReason.UNALIGNED_START:
            return f"not a multiple of {self.limits.segment_bytes}"
        announced = None if self._announced == NOTHING else self._announced
        return f"announced: {announced}, no log is longer than {LOG_OFFSET_MAX}"

    # reporting

    def report(self, now_ms: int) -> bytes | None:
        """Return what to send now: our end grew since the last report, or we were silent for too long.

        Raises PeerError.
        """
        if self.is_opening:
            return self._opening_report(now_ms)
        end = int(client_kernel.next_report(self.words, self.limits, now_ms))
        return None if end == NOTHING else REPORT.pack(end)

    def _opening_report(self, now_ms: int) -> bytes | None:
        """The request; what our greeting answers; or that we are still there, without an acknowledgement."""
        assert self.opening is not None
        self.opening.conclude_from_silence(now_ms)
        request = self.opening.request
        if self.reported_offset != request:
            self.reported_offset, self.last_write_ms = request, now_ms
            return REPORT.pack(request) if self.opening.greeting is None else first_report(request)
        answer, self.opening.answer = self.opening.answer, b""
        if not answer and now_ms - self.last_write_ms <= self._patience_ms:
            return None
        self.last_write_ms = now_ms
        greeting = self.opening.greeting
        is_understood = greeting is not None and greeting.master is not None
        return answer or REPORT.pack(min(request, self.end) if is_understood else request)

    def is_silent(self, now_ms: int) -> bool:
        """Whether the master said nothing for so long that the connection must be given up."""
        return now_ms - self.last_read_ms > self.limits.housekeeping_interval_ms
