"""Follows a master: bytes go from the socket into the mapped segment, then our end is published, then reported.

Implements: HAClient (spec: ha-protocol, 4 slave side); the decisions are in protocol/ha_client.py
Follows:    allocated_offset, the allocator's; ha_server_address, when haMasterAddress is not given
Publishes:  max_physical_offset, segment_request_offset, store_timestamp_ms, ha_client.*
Frames split records: our end is any byte, and readers see whole records only. A restart goes on from our own cursor.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
import struct

from engine import addresses
from engine.config import BrokerConfig
from engine.cursors import Board
from engine.protocol.ha_client import ClientLimits, HaClient, HaClientState
from engine.protocol.ha_wire import ADVICE, NOT_CONNECTED, TRIED_SOON, CloseReason, PeerError
from ipc import waiting
from store import file_io
from store.segment import Segment
from store.segment_files import SegmentFiles

log = logging.getLogger("slipstream.receiver")

CONNECT_TIMEOUT_MS = 5000
SOCKET_TIMEOUT_S = 1
READS_PER_TURN = 64
REPORT_AT_LATEST_BYTES = 1 << 20  # while more is waiting in the socket; else at once
AHEAD_BYTES = 8 * 1024
POPULATE_BYTES = 1 << 20
POPULATE_AHEAD_BYTES = 512 * 1024
NOTHING = memoryview(b"")
NO_SPACE = memoryview(bytearray())  # recvmsg wants to be able to write
TIMEVAL = struct.Struct("@ll")

Address = tuple[str, int]


class Receiver:
    """The slave's end of replication, over all reconnects; the only writer of a slave's log."""

    name = "receiver"

    def __init__(self, board: Board, files: SegmentFiles, limits: ClientLimits, master: Address | None) -> None:
        self._published_offset = board.max_physical_offset.read()
        self.client = HaClient(limits, self._published_offset)
        self._board = board
        self._words = board.ha_client
        self._files = files
        self._master = master
        self._socket: socket.socket | None = None
        self._connect_until_ms = 0
        self._segment: Segment | None = None
        self._populated_bytes = 0
        self._arrived = 0  # bytes that came while idle
        self._ahead_bytes = 0  # bytes that came behind a header, and lie in the log, still unjudged, at its end
        self._overrun = NOTHING  # bytes that came behind those: the next frame's header and what follows
        self._is_drained = False
        self._transferred_bytes = self._words.transferred_bytes.read()
        self._now_ms = 0
        waiting.publish(self._words.state, HaClientState.READY)

    def do_work(self, now_ms: int) -> int:
        """Connect, or receive what is there and report; the bytes received, 0 once the socket is empty.

        Also 0 when they were the last: the next turn would only find that out, and every put would pay for it.
        """
        self._now_ms = now_ms
        if self.client.state is not HaClientState.TRANSFER:
            return self._connect(now_ms)
        before, has_more = self._transferred_bytes, True
        try:
            self._publish_end()
            for _ in range(READS_PER_TURN):
                has_more = self._receive(now_ms)
                if not has_more:
                    break
            self._report(now_ms)
        except PeerError as error:
            self._hang_up(error.reason, error.detail)
        except ConnectionError as error:
            self._hang_up(CloseReason.PEER_CLOSED, str(error))
        moved = self._transferred_bytes - before
        if moved:
            waiting.note(self._words.transferred_bytes, self._transferred_bytes)
            waiting.note(self._words.last_read_ms, now_ms)
            waiting.note(self._board.store_timestamp_ms, now_ms)
            self._populate_ahead()
        elif self._socket is not None and self.client.is_silent(now_ms) and not self._lacks_space():
            self._hang_up(CloseReason.HOUSEKEEPING, f"{now_ms - self.client.last_read_ms} ms")
        return moved if has_more else 0

    # the connection

    def _connect(self, now_ms: int) -> int:
        if self._socket is None:
            master = self._master or self._advertised()
            if master is None or not self.client.may_connect(now_ms):
                return 0
            return self._begin_connect(master, now_ms)
        if not select.select([], [self._socket], [], 0)[1]:
            if now_ms >= self._connect_until_ms:
                self._hang_up(CloseReason.CONNECT_TIMEOUT, f"no answer within {CONNECT_TIMEOUT_MS} ms")
            return 0
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self._hang_up(why_not_connected(OSError(error, "")), errno.errorcode.get(error, str(error)))
            return 0
        return self._finish_connect(self._socket, now_ms)

    def _advertised(self) -> Address | None:
        """Where the name server says that the master is, asked at each connect: it may be another one by now."""
        return addresses.unpack(*addresses.read(self._board.ha_server_address))

    def _begin_connect(self, master: Address, now_ms: int) -> int:
        """Connect to one address of the master: its name is looked up each time, its addresses are tried in turn."""
        self._connect_until_ms = now_ms + CONNECT_TIMEOUT_MS
        try:
            found = addresses.resolve(*master)
            family, address = found[self.client.failures % len(found)]
            self._socket = socket.socket(family, socket.SOCK_STREAM)
            self._socket.setblocking(False)
            self._socket.connect(address)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._hang_up(why_not_connected(error), f"{addresses.told(*master)}: {error}")
            return 0
        assert self._socket is not None
        return self._finish_connect(self._socket, now_ms)

    def _finish_connect(self, sock: socket.socket, now_ms: int) -> int:
        try:
            host, port = sock.getpeername()[:2]
            own_host, own_port = sock.getsockname()[:2]
            if (own_host, own_port) == (host, port):  # TCP connects a port to itself when nobody listens on it
                refused = f"{addresses.told(host, port)} is this connection's own end"
                raise ConnectionRefusedError(errno.ECONNREFUSED, refused)
            if own_host == host and port == self._board.ha_listen_port.read():
                self._hang_up(CloseReason.OWN_ADDRESS, addresses.told(host, port))
                return 0
            sock.setblocking(True)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                sock.setsockopt(socket.SOL_SOCKET, option, TIMEVAL.pack(SOCKET_TIMEOUT_S, 0))
        except OSError as error:
            self._hang_up(why_not_connected(error), str(error))
            return 0
        self.client.connected(now_ms)
        self._arrived, self._is_drained = 0, True
        self._ahead_bytes, self._overrun = 0, NOTHING
        addresses.publish(self._words.master_address, host, port)
        waiting.note(self._words.last_read_ms, now_ms)
        waiting.publish(self._words.state, HaClientState.TRANSFER)
        return 1

    def _hang_up(self, reason: CloseReason, detail: str) -> None:
        self._publish_end()
        reason = self.client.seen_as(reason)
        is_news = reason is not self.client.reason or reason not in TRIED_SOON
        if is_news and reason is not CloseReason.STOPPED:
            log.warning("connection to the master ended: %s %s; %s", reason.name, detail, ADVICE[reason])
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._cut_ahead(0)
        self._overrun = NOTHING
        self.client.closed(reason, self._now_ms)
        waiting.add(self._words.ended[reason], 1)
        waiting.note(self._words.ended_at_ms, self._now_ms)
        waiting.publish(self._words.reason, reason)
        waiting.publish(self._words.state, self.client.state)

    # receiving

    def _receive(self, now_ms: int) -> bool:
        """Take in one read; False when there is nothing more to read, or no room for it."""
        arrived, self._arrived = self._arrived, 0
        if not arrived:
            if self._lacks_space():
                return False
            arrived = self._read(socket.MSG_DONTWAIT)
            if not arrived:
                return False
        client = self.client
        client.received(arrived, now_ms)
        self._transferred_bytes += arrived
        self._publish_end()
        if client.max_physical_offset - client.reported_offset >= REPORT_AT_LATEST_BYTES:
            self._report(now_ms)
        return self._has_leftover() or not self._is_drained

    def _has_leftover(self) -> bool:
        return self._ahead_bytes > 0 or len(self._overrun) > 0

    def _publish_end(self) -> None:
        end = self.client.max_physical_offset
        if end == self._published_offset:
            return
        if self._segment is None and self._lacks_space():
            return  # an empty log begins at `end`: said once its first segment exists
        waiting.publish(self._board.max_physical_offset, end)
        self._published_offset = end

    def _read(self, flags: int) -> int:
        """The rest of this body, into its place, and the next header, in one system call; how much came.

        Between frames: the next header, and what comes with it where its body will belong, so that a small frame is one
        system call and one wake-up. What came too much is taken out again before anything is published.
        """
        if self._has_leftover():
            return self._take_leftover()
        header_space, body_space = self.client.header_space, self._body_space()
        between_frames = not self.client.body_left
        spaces = (header_space, body_space) if between_frames else (body_space, header_space)
        assert self._socket is not None
        try:
            received = self._socket.recvmsg_into(spaces, 0, flags)[0]
        except BlockingIOError:
            self._is_drained = True
            return 0
        except OSError as error:
            raise ConnectionError(str(error)) from error
        if received == 0:
            raise ConnectionError("end of stream")
        self._is_drained = received < len(header_space) + len(body_space)
        if between_frames and received > len(header_space):
            self._ahead_bytes = received - len(header_space)
            return len(header_space)
        return received

    def _body_space(self) -> memoryview:
        """Where the log goes on: room for the rest of the body, or between frames for a small one."""
        segment, wanted = self._segment, self.client.body_left or AHEAD_BYTES
        if segment is None:
            return NO_SPACE
        start = self.client.max_physical_offset - segment.base_offset
        if start + wanted > self._populated_bytes:
            self._populate_ahead()
        return segment.view[start : start + wanted]

    def _take_leftover(self) -> int:
        """As `_read`, from what came before."""
        body_left = self.client.body_left
        if self._ahead_bytes:
            taken = min(self._ahead_bytes, body_left)
            self._overrun = self._cut_ahead(taken)
            if taken:
                return taken
        spaces = (self._body_space(), self.client.header_space) if body_left else (self.client.header_space,)
        count = 0
        for space in spaces:
            size = min(len(space), len(self._overrun))
            space[:size] = self._overrun[:size]
            self._overrun = self._overrun[size:]
            count += size
        return count

    def _cut_ahead(self, taken: int) -> memoryview:
        """Keep `taken` of the bytes ahead; take the others out of the log, where zeros belong."""
        if self._segment is None or not self._ahead_bytes:
            return NOTHING
        end = self.client.max_physical_offset - self._segment.base_offset
        cut = self._segment.view[end + taken : end + self._ahead_bytes]
        overrun = memoryview(bytes(cut))
        cut[:] = bytes(len(cut))
        self._ahead_bytes = 0
        return overrun

    def _report(self, now_ms: int) -> None:
        if self._published_offset != self.client.max_physical_offset:
            return  # never report what is not published
        report = self.client.report(now_ms)
        if report is None or self._socket is None:
            return
        try:
            sent = self._socket.send(report)
        except OSError as error:
            raise ConnectionError(str(error)) from error
        if sent != len(report):
            raise ConnectionError("the master does not read our reports")
        waiting.note(self._words.last_write_ms, now_ms)

    # room in the log

    def _lacks_space(self) -> bool:
        """Whether bytes are due whose segment is not there yet; asks the allocator for it, opens it when it is."""
        offset = self.client.max_physical_offset
        if self._segment is not None and offset < self._segment.end_offset:
            return False
        if not self.client.body_left and offset == self._published_offset:
            return False  # nothing is due: an empty slave must not begin a log before its master says where
        waiting.publish(self._board.segment_request_offset, offset)
        if self._board.allocated_offset.read() <= offset:
            return True
        if self._segment is not None:
            self._segment.close()
        self._segment = None  # stays so if the next line raises
        self._segment = self._files.open(self._files.base_of(offset), writable=True)
        start = self._populated_bytes = offset - self._segment.base_offset
        self._populate_ahead()
        ahead = self._segment.view[start : start + AHEAD_BYTES]
        ahead[:] = bytes(len(ahead))  # where a receiver that was killed may have left bytes unjudged
        return False

    def _populate_ahead(self) -> None:
        """Fault in what lies ahead: page by page inside recv it costs more, and comes at a worse time."""
        if self._segment is None:
            return
        position = self.client.max_physical_offset - self._segment.base_offset
        if self._populated_bytes >= min(position + POPULATE_AHEAD_BYTES, self._segment.size_bytes):
            return
        start = max(position, self._populated_bytes)
        file_io.populate_write(self._segment.view, start, POPULATE_BYTES)
        self._populated_bytes = start + POPULATE_BYTES

    # waiting

    def idle(self, timeout_ms: int) -> None:
        """Sleep until bytes come, room comes, the connection stands, or something is due."""
        wait_ms = min(timeout_ms, self.client.wait_ms(self._now_ms))
        if self.client.state is not HaClientState.TRANSFER:
            writing = [] if self._socket is None else [self._socket]
            select.select([], writing, [], (wait_ms if writing or self._master else timeout_ms) / 1000)
            return
        allocated_seen = self._board.allocated_offset.read()
        if self._lacks_space():
            waiting.await_change(self._board.allocated_offset, allocated_seen, wait_ms)
            return
        if self._has_leftover():
            return
        try:
            self._arrived = self._read(0)  # SO_RCVTIMEO is its deadline
        except ConnectionError as error:
            self._hang_up(CloseReason.PEER_CLOSED, str(error))

    def close(self) -> None:
        """Hang up and give the segment back; what was received is published already."""
        self._hang_up(CloseReason.STOPPED, "")
        if self._segment is not None:
            self._segment.close()


def why_not_connected(error: OSError) -> CloseReason:
    """The reason behind an error of a look-up or a connect."""
    if isinstance(error, socket.gaierror):
        return CloseReason.NO_ADDRESS
    return NOT_CONNECTED.get(error.errno or 0, CloseReason.CONNECT_FAILED)


def open_role(config: BrokerConfig, board: Board) -> Receiver:
    """The receiver of this slave; without haMasterAddress it waits forever."""
    limits = ClientLimits(
        segment_bytes=config.mapped_file_size_commit_log_bytes,
        send_heartbeat_interval_ms=config.ha_send_heartbeat_interval_ms,
        housekeeping_interval_ms=config.ha_housekeeping_interval_ms,
        reconnect_interval_ms=config.ha_reconnect_interval_ms,
    )
    files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
    return Receiver(board, files, limits, config.ha_master_address)
