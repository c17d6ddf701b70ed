"""Sends the commit log to one slave, from the page cache: the bytes never enter Python.

Implements: HAConnection (WriteSocketService, ReadSocketService); the decisions are in protocol/ha_connection.py
spec: ha-protocol, 3 master side
Follows:    max_physical_offset, the writer's cursor
Publishes:  ha.N.*; the writing half next_transfer_offset and transferred_bytes, the reading half the others; ack_bell
A header promises its body: once it is out, the body follows from the segment opened before, or the connection ends.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
from collections.abc import Callable

from engine import addresses
from engine.config import BrokerConfig
from engine.cursors import Board
from engine.protocol.flow_monitor import UNLIMITED, FlowMonitor
from engine.protocol.ha_connection import ConnectionLimits, HaConnection
from engine.protocol.ha_wire import ADVICE, FRAME_HEADER, CloseReason, PeerError
from engine.role import wall_clock_ms
from ipc import atomics, waiting
from store.segment import Segment
from store.segment_files import SegmentFiles

log = logging.getLogger("slipstream.sender")

FREE, CONNECTED, TRANSFER = 0, 1, 2
FRAMES_PER_TURN = 32  # about a megabyte between two heartbeats of the process
REPORTS_BYTES_MAX = 64 * 1024
SEND_TIMEOUT_S = 1
READER_JOIN_S = 5.0
TIMEVAL = struct.Struct("@ll")


class Sender:
    """One slave's connection: `do_work` is its writing half, `take_reports` its reading half."""

    def __init__(
        self, board: Board, slot: int, files: SegmentFiles, limits: ConnectionLimits, flow: FlowMonitor, now_ms: int
    ) -> None:
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
        self._header = b""  # what is left to write of the frame begun: its header, then its body
        self._body_at = 0
        self._body_left = 0
        self._transferred_bytes = 0
        self._max_seen = 0
        self._wake_seen = 0
        self._now_ms = now_ms

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
        if self.connection.is_silent(now_ms):
            self._end(CloseReason.HOUSEKEEPING, f"{now_ms - self.connection.last_read_ms} ms")
            return 0
        before, is_behind = self._transferred_bytes, True
        for _ in range(FRAMES_PER_TURN):
            if not self._has_rest() and not self._begin_frame(now_ms):
                is_behind = False
                break
            if not self._write_frame():
                break
        moved = self._transferred_bytes - before
        if moved:
            waiting.note(self._words.transferred_bytes, self._transferred_bytes)
        return moved if is_behind else 0

    def _has_rest(self) -> bool:
        return bool(self._header) or self._body_left > 0

    def _begin_frame(self, now_ms: int) -> bool:
        self._max_seen = self._board.max_physical_offset.read()
        frame = self.connection.next_frame(now_ms, self._max_seen)
        if frame is None:
            return False
        offset, self._body_left = frame
        self._header = FRAME_HEADER.pack(offset, self._body_left)
        if self._body_left:
            waiting.note(self._words.next_transfer_offset, self.connection.next_transfer_offset)
            self._body_at = offset % self._files.segment_bytes
            base_offset = offset - self._body_at
            if self._segment is None or self._segment.base_offset != base_offset:
                return self._open_segment(base_offset)
        return True

    def _open_segment(self, base_offset: int) -> bool:
        """Have the segment open, whatever becomes of its name then; False, and the end, when it has expired."""
        if self._segment is not None:
            self._segment.close()
        self._segment = None  # stays so if the next line raises
        try:
            self._segment = self._files.open(base_offset)
        except FileNotFoundError:
            begin = self._board.min_physical_offset.read()
            if base_offset >= begin:
                raise
            self._end(CloseReason.GAP, f"at offset {base_offset}: the log begins at {begin}")
            return False
        return True

    def _write_frame(self) -> bool:
        """Write what is left of the frame; False when it could not all be written."""
        try:
            self._write()
        except BlockingIOError:
            return False  # the slave does not read fast enough; the frame's rest waits for the next turn
        except OSError as error:
            self._end(CloseReason.PEER_CLOSED, str(error))
            return False
        return True

    def _write(self) -> None:
        """One frame: one send, held back by the kernel until the sendfile after it fills the packet."""
        assert self._socket is not None
        while self._header:
            sent = self._socket.send(self._header, socket.MSG_MORE if self._body_left else 0)
            self._header = self._header[sent:]
            self._transferred_bytes += sent
        while self._body_left:
            assert self._segment is not None
            sent = os.sendfile(self._socket_fd, self._segment.fd, self._body_at, self._body_left)
            if sent == 0:
                raise EOFError(f"{self._segment.path}: shorter than {self._body_at + self._body_left} bytes")
            self._body_at += sent
            self._body_left -= sent
            self._transferred_bytes += sent

    def idle(self, timeout_ms: int) -> None:
        """Sleep until the log grows, a first report or an end comes, or a heartbeat is due."""
        if self.ended or self._has_rest():
            return
        wait_ms = min(timeout_ms, self.connection.wait_ms(self._now_ms))
        is_transferring = self.connection.next_transfer_offset >= 0
        if is_transferring and not self.connection.flow.wait_ms(self._now_ms):
            waiting.await_change(self._board.max_physical_offset, self._max_seen, wait_ms)
        else:
            waiting.await_change(self._words.wake, self._wake_seen, wait_ms)

    # the reading half

    def start_reading(self, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        """Read reports in a thread of its own, blocked in recv: the wire, not a poll, wakes it."""
        self._reader = threading.Thread(target=self._read, args=(clock_ms,), name="ReadSocketService", daemon=True)
        self._reader.start()

    def _read(self, clock_ms: Callable[[], int]) -> None:
        assert self._socket is not None
        while not self.ended:
            try:
                data = self._socket.recv(REPORTS_BYTES_MAX)
            except BlockingIOError:
                continue  # the writing half watches for how long
            except OSError as error:
                self._end(CloseReason.PEER_CLOSED, str(error))
                return
            self.take_reports(data, clock_ms())

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
    sender = Sender(board, slot, files, limits, FlowMonitor(now_ms, limit), now_ms)
    sender.attach(sock, now_ms)
    sender.start_reading()
    return sender
