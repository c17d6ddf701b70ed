"""Sends the commit log to one slave, from the page cache: the bytes never enter Python.

Implements: HAConnection (WriteSocketService, ReadSocketService); the decisions are in protocol/ha_connection.py, and
            for the usual case, compiled, in engine/sending.py
spec: ha-protocol, 3 master side
Follows:    max_physical_offset, the writer's cursor
Publishes:  ha.N.*; the writing half next_transfer_offset and transferred_bytes, the reading half the others; ack_bell;
            confirm_offset, where one slave is enough: nobody else has to be woken for that
A header promises its body: once it is out, the body follows from the segment opened before, or the connection ends.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable

import numpy as np

from engine import addresses, ha_settings, sending
from engine.config import BrokerConfig
from engine.cursors import Board
from engine.protocol.flow_monitor import UNLIMITED, FlowMonitor
from engine.protocol.ha_connection import ConnectionLimits, HaConnection
from engine.protocol.ha_policy import put_policy
from engine.protocol.ha_wire import ADVICE, REPORT_BYTES, CloseReason, PeerError
from engine.role import wall_clock_ms
from ipc import atomics, waiting
from ipc.region import Bytes
from store.segment import Segment
from store.segment_files import SegmentFiles

log = logging.getLogger("slipstream.sender")

FREE, CONNECTED, TRANSFER = 0, 1, sending.TRANSFERRING
FRAMES_PER_TURN = 32
FRAMES_MAX = 1 << 30  # of a turn that ends by its time
REPORTS_BYTES_MAX = 64 * 1024
SEND_TIMEOUT_S = 1
READER_JOIN_S = 5.0
TIMEVAL = struct.Struct("@ll")


class Sender:
    """One slave's connection: `do_work` is its writing half, `take_reports` its reading half."""

    def __init__(
        self, board: Board, slot: int, files: SegmentFiles, limits: ConnectionLimits, flow: FlowMonitor, now_ms: int,
        *, confirms: bool = False, fallbehind_bytes_max: int = 0,
    ) -> None:  # fmt: skip
        self.name = f"sender.{slot}"
        self.connection = HaConnection(limits, flow, now_ms)
        self.reason = CloseReason.NONE
        self._board = board
        self._words = board.ha[slot]
        self._files = files
        self._segment: Segment | None = None
        self._socket: socket.socket | None = None
        self._socket_fd = -1
        self._reader: threading.Thread | None = None
        self._wake_seen = 0
        self._now_ms = now_ms
        self._confirms, self._fallbehind_bytes_max = confirms, fallbehind_bytes_max
        self._line = sending.line_of(board, slot, self.connection)
        self._reports: Bytes = np.zeros(REPORTS_BYTES_MAX, np.uint8)

    def attach(self, sock: socket.socket, now_ms: int) -> None:
        """Take over an accepted socket, and the slot's words with it."""
        sock.setblocking(True)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel keeps the deadlines: Python's own time-outs cost a poll before every call.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, TIMEVAL.pack(SEND_TIMEOUT_S, 0))
        receive_s = self.connection.limits.housekeeping_interval_ms // 1000 + 1
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIMEVAL.pack(receive_s, 0))
        self._socket, self._socket_fd = sock, sock.fileno()
        words, connection = self._words, self.connection
        addresses.publish(words.peer_address, *sock.getpeername()[:2])
        for cursor, value in (
            (words.slave_request_offset, connection.slave_request_offset),
            (words.next_transfer_offset, connection.next_transfer_offset),
            (words.slave_ack_offset, connection.slave_ack_offset),
            (words.transferred_bytes, 0),
            (words.acks_rejected, 0),
            (words.last_read_ms, now_ms),
            (words.connected_at_ms, now_ms),
            (words.state, CONNECTED),
        ):
            waiting.publish(cursor, value)

    @property
    def ended(self) -> bool:
        """Whether the connection is over: nothing more will be sent or believed."""
        return self.reason is not CloseReason.NONE

    # the writing half

    def do_work(self, now_ms: int) -> int:
        """Write what the log has for this slave, a few frames at most; the bytes written, 0 once there is no more.

        Also 0 when the last of it was written: a turn that finds nothing would cost every put its microseconds.
        """
        self._now_ms = now_ms
        self._wake_seen = self._words.wake.read()
        if self.ended:
            return 0
        before = int(self._line.frame[sending.TRANSFERRED])
        is_behind = self._transfer(now_ms, FRAMES_PER_TURN, 0)
        return int(self._line.frame[sending.TRANSFERRED]) - before if is_behind else 0

    def _transfer(self, now_ms: int, frames: int, timeout_ms: int) -> bool:
        """One turn of the compiled loop, and what it leaves to us; whether there may be more to write at once."""
        while True:
            outcome = sending.transfer(self._line, self.connection.limits, self._socket_fd, now_ms, frames, timeout_ms)
            if outcome != sending.NEEDS_SEGMENT:
                break
            if not self._open_segment(self._frame_base()):
                return False
        if outcome == sending.SHORT_FILE:
            raise EOFError(f"{self._frame_base()}: the segment is shorter than what the log has")
        if outcome == sending.LOOK:
            self._end(CloseReason.HOUSEKEEPING, f"{wall_clock_ms() - self.connection.last_read_ms} ms")
        elif outcome < 0 and outcome not in (-errno.EAGAIN, -errno.EINTR):  # a slow slave; the rest waits for its turn
            self._end(CloseReason.PEER_CLOSED, os.strerror(-outcome))
        return bool(outcome != sending.IN_STEP)

    def _has_rest(self) -> bool:
        frame = self._line.frame
        return bool(frame[sending.HEADER_LEFT] or frame[sending.BODY_LEFT])

    def _frame_base(self) -> int:
        """The base of the segment that the frame begun, all of it unsent, lies in."""
        frame = self._line.frame
        return self.connection.next_transfer_offset - int(frame[sending.BODY_LEFT] + frame[sending.BODY_AT])

    def _open_segment(self, base_offset: int) -> bool:
        """Have the segment open, whatever becomes of its name then; False, and the end, when it has expired."""
        self._line.segment[:] = -1
        if self._segment is not None:
            self._segment.close()
        self._segment = None  # stays so if the next line raises
        try:
            opened = self._segment = self._files.open(base_offset)
        except FileNotFoundError:
            begin = self._board.min_physical_offset.read()
            if base_offset >= begin:
                raise
            self._end(CloseReason.GAP, f"at offset {base_offset}: the log begins at {begin}")
            return False
        self._line.segment[:] = opened.base_offset, opened.fd, opened.array.ctypes.data
        return True

    def idle(self, timeout_ms: int) -> None:
        """Sleep until the log grows, a first report or an end comes, or a heartbeat is due."""
        if self.ended or self._has_rest():
            return
        connection = self.connection
        if connection.next_transfer_offset < 0 or connection.flow.wait_ms(self._now_ms):
            wait_ms = min(timeout_ms, connection.wait_ms(self._now_ms))
            waiting.await_change(self._words.wake, self._wake_seen, wait_ms)
        else:
            self._transfer(0, FRAMES_MAX, timeout_ms)

    # the reading half

    def start_reading(self, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        """Read reports in a thread of its own, blocked in recv: the wire, not a poll, wakes it."""
        self._reader = threading.Thread(target=self._read, args=(clock_ms,), name="ReadSocketService", daemon=True)
        self._reader.start()

    def _read(self, clock_ms: Callable[[], int]) -> None:
        assert self._socket is not None
        while not self.ended:
            rest = len(self.connection.rest)  # the kernel takes whole reports only, and gets none before this one's end
            space = self._reports[: REPORTS_BYTES_MAX if not rest else REPORT_BYTES - rest]
            count = sending.hear(self._line, self._socket_fd, space, self._confirms, self._fallbehind_bytes_max)
            if count >= 0:
                self.take_reports(self._reports[:count].tobytes(), clock_ms())
            elif count not in (-errno.EAGAIN, -errno.EINTR):  # else the writing half watches for how long
                self._end(CloseReason.PEER_CLOSED, os.strerror(-count))

    def take_reports(self, data: bytes, now_ms: int) -> None:
        """Judge what the slave sent (nothing: it hung up), publish what it acknowledged, ring."""
        if not data:
            self._end(CloseReason.PEER_CLOSED, "end of stream")
            return
        words, connection = self._words, self.connection
        acked_before = connection.slave_ack_offset
        try:
            connection.receive(
                data, now_ms, self._board.min_physical_offset.read(), self._board.max_physical_offset.read()
            )
        except PeerError as error:
            waiting.publish(words.acks_rejected, connection.acks_rejected)
            self._end(error.reason, error.detail)
            return
        if connection.slave_ack_offset != acked_before:
            waiting.publish(words.slave_ack_offset, connection.slave_ack_offset)
            if acked_before < 0:
                waiting.publish(words.slave_request_offset, connection.slave_request_offset)
                waiting.publish(words.state, TRANSFER)
                self._wake_writing_half()
            waiting.ring(self._board.ack_bell)
        waiting.note(words.last_read_ms, now_ms)

    def _end(self, reason: CloseReason, detail: str) -> None:
        """The connection is over. Called by either half; what the other one still does fails on the socket."""
        if self.ended:
            return
        self.reason = reason
        level = logging.INFO if reason in (CloseReason.PEER_CLOSED, CloseReason.STOPPED) else logging.WARNING
        log.log(level, "%s: connection ended: %s %s; %s", self.name, reason.name, detail, ADVICE[reason])
        waiting.note(self._words.ended_at_ms, wall_clock_ms())
        waiting.publish(self._words.reason, reason)
        waiting.publish(self._words.state, FREE)
        waiting.ring(self._board.ack_bell)
        self._shut_down()
        self._wake_writing_half()

    def _wake_writing_half(self) -> None:
        waiting.publish(self._words.wake, self._words.wake.read() + 1)
        end = self._board.max_physical_offset
        atomics.wake(end.words, end.index)  # it may sleep there; the other sleepers look and sleep on

    def _shut_down(self) -> None:
        if self._socket is None:
            return
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            log.debug("%s: already shut down: %s", self.name, error)

    def close(self) -> None:
        """Hang up, end the reading thread, give the segment back."""
        self._end(CloseReason.STOPPED, "")
        if self._reader is not None:
            self._reader.join(READER_JOIN_S)
        if self._socket is not None:
            self._socket.close()
        if self._segment is not None:
            self._segment.close()


def open_role(config: BrokerConfig, board: Board, slot: int, sock: socket.socket) -> Sender:
    """The sender of one accepted slave, reading already."""
    now_ms = wall_clock_ms()
    limits = ConnectionLimits(
        segment_bytes=config.mapped_file_size_commit_log_bytes,
        transfer_batch_bytes=config.ha_transfer_batch_bytes,
        send_heartbeat_interval_ms=config.ha_send_heartbeat_interval_ms,
        housekeeping_interval_ms=config.ha_housekeeping_interval_ms,
    )
    limit = config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else UNLIMITED
    files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
    policy = put_policy(ha_settings.of_config(config))
    confirms = policy.in_sync_replicas == 2 and not policy.replicas_min
    sender = Sender(
        board, slot, files, limits, FlowMonitor(now_ms, limit), now_ms, confirms=confirms,
        fallbehind_bytes_max=config.ha_slave_fallbehind_max_bytes,
    )  # fmt: skip
    sender.attach(sock, now_ms)
    sender.start_reading()
    return sender
