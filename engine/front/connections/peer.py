"""One connection of a front: bytes into frames, answers out, all of a turn in one write.

Implements: NettyDecoder, NettyEncoder (spec: remoting, 1 frame)
What is received lies in a buffer that all connections of the front share; only the part of a frame that has not come
whole is kept. Nothing is read from a peer that does not take its answers, and one that asks for much at once has its
turn and no more: what it asked beyond is kept as it came, until the others had theirs and its answers are on their way.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable
from typing import Protocol, cast

from engine.front.connections import log_body
from engine.front.connections.log_body import LogAnswer, Part
from engine.protocol.remoting.frame import FRAME_BYTES_MAX, LENGTH_BYTES, MalformedFrame
from engine.remoting.sockets.connections import Connection
from store.message.host import Host

_LENGTH = struct.Struct(">i")
_ACKED_AT, _ACKED = 120, struct.Struct("=Q")  # tcpi_bytes_acked
JOINED_BYTES_MAX = 128 * 1024  # of a frame's beginning, put before what comes; half of the buffer
ANSWERS_BYTES_MAX = 1 << 20  # of one connection, written in a turn, before it is served no more
WAITING_BYTES_MAX = 128 * 1024  # the same, once its socket takes nothing now; more than makes it deaf
DEAF_BYTES = 64 * 1024  # not taken: nothing is read from it any more
FIRST_BYTES = 16 * 1024  # read of a new connection: hundreds may come in one turn of the loop
TURN_SECONDS = 0.005  # for the requests of one connection, while others wait


class PeerHost(Protocol):
    """The front, as the owner of connections."""

    buffer: memoryview

    def open_peer(self, peer: Peer, first: int) -> bool:
        """Whether a connection may go on that begins with this byte."""

    def take_compiled(self, peer: Peer, at: int, end: int) -> int:
        """Answer the fast frames of the buffer from `at` to `end`.

        Return where the first one begins that leaves the fast path, or is not whole. Called for peers with a `slot`, or
        that pull.
        """

    def received(self, peer: Peer, data: memoryview, start: int, length: int) -> None:
        """Take one frame without its length: data[start : start + length], valid in the call. Raises MalformedFrame."""

    def spoke(self, peer: Peer) -> None:
        """A peer sent one or more whole frames."""

    def holds(self, peer: Peer, count: int) -> None:
        """Note how many bytes are kept for a peer: of an incomplete frame, and of answers that it does not take."""

    def wrote(self, peer: Peer) -> None:
        """Note that a peer has answers to be sent at the end of this turn."""

    def had_turn(self, peer: Peer) -> None:
        """Note that a peer has more to serve: `go_on` is called after the others had their turn."""

    def broke(self, peer: Peer, malformed: MalformedFrame) -> None:
        """Handle a peer that sent an invalid frame."""

    def peer_gone(self, peer: Peer) -> None:
        """A peer's connection has ended."""


class Peer(asyncio.BufferedProtocol):
    """The connection; `number` is its own among all of this front, never used again."""

    def __init__(
        self, host: PeerHost, connection: Connection, address: Host, *, is_without_pulls: bool, is_tls: bool
    ) -> None:
        self._host, self.connection, self.number = host, connection, connection.number
        self.address, self.is_without_pulls, self.is_tls = address, is_without_pulls, is_tls
        self.is_announced = False  # to the clients role
        self.slot = -1  # where compiled code knows it; it takes what it can first
        self.pulls = False  # whether they may take the fast path
        self.is_pulling = False  # whether a pull was what compiled code answered last
        self.heartbeat = b""  # its last whole one, as it came
        self.goodbyes: list[bytes] = []  # of groups of it, since then
        self.frame_since: float | None = None  # when a frame began that is not whole yet
        self.stuck_since: float | None = None  # when it took something of its answers last, while some are kept
        self.when_taken: Callable[[], None] | None = None  # called once, when it has taken most of its answers
        self._transport: asyncio.Transport | None = None
        self._partial = bytearray()
        self._out: list[Part] = []
        self._out_bytes = 0
        self._has_ranges = False  # of the log, among them
        self._has_more = False  # whole frames, perhaps, in what is kept of what it sent
        self._is_deaf = False  # it takes no answers now
        self.is_crowded = False  # others have used this loop turn's time for what it asks next
        self._socket: socket.socket | None = None
        self._fd = -1
        self._acked = 0  # of all that was sent to it, when it was looked at last
        self._is_begun = False

    # reading

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport and its socket, and limit its write buffer."""
        self._transport = self.connection.transport = cast(asyncio.Transport, transport)
        self._socket = cast(socket.socket, transport.get_extra_info("socket"))
        self._fd = self._socket.fileno()
        self._transport.set_write_buffer_limits(high=DEAF_BYTES)

    def get_buffer(self, _size_hint: int) -> memoryview:
        """Return where the next bytes go: the front's buffer, behind what is there of a frame."""
        if not self._is_begun:
            return self._host.buffer[:FIRST_BYTES]
        buffer, kept = self._host.buffer, len(self._partial)
        if not 0 < kept <= JOINED_BYTES_MAX:
            return buffer
        buffer[:kept] = self._partial
        return buffer[kept:]

    def buffer_updated(self, count: int) -> None:
        """Serve the frames among the bytes received; keep the last one if it is incomplete."""
        kept = len(self._partial)
        if not self._is_begun:
            self._is_begun = True
            if not self._host.open_peer(self, self._host.buffer[0]):
                self.close()
                return
        if kept <= JOINED_BYTES_MAX:
            self._serve_buffer(kept, kept + count)
            return
        self._partial += self._host.buffer[:count]
        if len(self._partial) >= LENGTH_BYTES + _LENGTH.unpack_from(self._partial)[0]:
            self._serve_kept()
        else:
            self._note_kept()

    def _serve_buffer(self, kept: int, end: int) -> None:
        """The frames of the buffer up to `end`, which begins with what was kept."""
        try:
            used = self._take(self._host.buffer[:end], self.slot >= 0 or self.pulls)
        except MalformedFrame as malformed:
            self._hang_up_on(malformed)
            return
        if kept or used < end:
            self._partial = bytearray(self._host.buffer[used:end])
        self._note_kept()

    def _serve_kept(self) -> None:
        """The frames of what is kept."""
        kept = len(self._partial)
        if kept <= len(self._host.buffer):
            self._host.buffer[:kept] = self._partial
            self._serve_buffer(kept, kept)
            return
        whole = bytes(self._partial)  # a view of a bytearray would keep it from growing
        try:
            self._partial = bytearray(whole[self._take(memoryview(whole), False) :])
        except MalformedFrame as malformed:
            self._hang_up_on(malformed)
            return
        self._note_kept()

    def _hang_up_on(self, malformed: MalformedFrame) -> None:
        self._host.broke(self, malformed)
        self.abort()

    def _note_kept(self) -> None:
        if not self._partial or self._has_more:
            self.frame_since = None
        elif self.frame_since is None:
            self.frame_since = time.monotonic()
        if self._partial or self.connection.bytes_held:
            self.tell_held()

    def go_on(self) -> None:
        """Serve what was left when it had its turn, if it takes its answers."""
        if not self._has_more or self._is_deaf or not self.is_open:
            return
        self._has_more = False
        self._serve_kept()
        self._read_again()

    def _read_again(self) -> None:
        if self._transport is not None and self.is_open and not self._has_more and not self._is_deaf:
            self._transport.resume_reading()

    def _end_turn(self) -> None:
        self._has_more, self.is_crowded = True, False
        if self._transport is not None:
            self._transport.pause_reading()
        self._host.had_turn(self)

    def _has_enough(self, began: float) -> bool:
        """Whether its turn is over: it is to take what it has, or has asked for very much."""
        if self._transport is None or self.is_crowded or time.monotonic() - began > TURN_SECONDS:
            return True
        return self.room <= 0

    @property
    def answers_bytes(self) -> int:
        """Return the bytes that were written but not yet taken by the peer."""
        return self._out_bytes + self._waiting_bytes

    @property
    def _waiting_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    @property
    def room(self) -> int:
        """Return how many bytes of answers may be made now; few once the socket takes no more: it may never read."""
        waiting = self._waiting_bytes
        return (WAITING_BYTES_MAX if waiting else ANSWERS_BYTES_MAX) - waiting - self._out_bytes

    def _take(self, data: memoryview, is_buffer: bool) -> int:
        """Hand over the frames that are whole; how many bytes they have. Raises MalformedFrame."""
        at, end, before, began = 0, len(data), -1, time.monotonic()
        self.is_crowded = False
        while end - at >= LENGTH_BYTES and at != before:
            if is_buffer:
                begin, at = at, self._host.take_compiled(self, at, end)
                if at > begin:
                    self.frame_since = None
                if end - at < LENGTH_BYTES or not self.is_open:
                    break
            before = at
            (length,) = _LENGTH.unpack_from(data, at)
            if not LENGTH_BYTES <= length <= FRAME_BYTES_MAX:
                raise MalformedFrame("frame", f"its length says {length}, allowed are 4 to {FRAME_BYTES_MAX}")
            if end - at - LENGTH_BYTES < length or not self.is_open:
                break
            if self._has_enough(began):
                self._end_turn()
                break
            self.frame_since = None
            self._host.received(self, data, at + LENGTH_BYTES, length)
            at += LENGTH_BYTES + length
        if at:
            self._host.spoke(self)
        return at

    @property
    def is_open(self) -> bool:
        """Whether an answer may still arrive."""
        return self._transport is not None and not self._transport.is_closing()

    # writing

    def write(self, *parts: bytes | memoryview) -> None:
        """An answer, or a push, in one or more parts; it leaves when the turn ends."""
        if not self._out:
            self._host.wrote(self)
        self._out += parts
        self._out_bytes += sum(map(len, parts))

    def write_log(self, answer: LogAnswer) -> None:
        """Write an answer whose body lies in the log; like `write`, it leaves at the end of the turn."""
        if not self._out:
            self._host.wrote(self)
        self._out.append(answer)
        self._out_bytes += answer.bytes
        self._has_ranges = True

    @property
    def idle_fd(self) -> int:
        """Return the socket if bytes sent there at once follow all that was written; else -1."""
        transport = self._transport
        if self._out or self.is_tls or transport is None or transport.is_closing():
            return -1
        if transport.get_write_buffer_size():
            return -1
        return self._fd

    def write_rest(self, rest: bytes, error: int) -> None:
        """Write what the socket did not take when it was sent to directly; or handle its error."""
        if self._transport is None or error:
            self.abort()
            return
        self._transport.write(rest)
        self.tell_held()

    def flush(self) -> None:
        """Send what was written in this turn."""
        out, self._out, self._out_bytes = self._out, [], 0
        if not out or self._transport is None or self._transport.is_closing():
            return
        if self._has_ranges:
            self._has_ranges = False
            log_body.send(self._transport, self._fd, out, is_plain=not self.is_tls)
        else:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))  # type: ignore[arg-type]
        if self._transport.get_write_buffer_size():
            self.tell_held()

    def tell_held(self) -> None:
        """Tell the host how many bytes are kept for this connection, if any are or were."""
        left = self._waiting_bytes
        if not left:
            self.stuck_since = None
        elif (acked := self._acked_bytes()) != self._acked or self.stuck_since is None:
            self._acked, self.stuck_since = acked, time.monotonic()
        held = left + len(self._partial)
        if held or self.connection.bytes_held:
            self._host.holds(self, held)

    def _acked_bytes(self) -> int:
        """Return how many of the sent bytes the client has acknowledged."""
        assert self._socket is not None
        try:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED_AT + _ACKED.size)
        except OSError:  # it is gone
            return self._acked
        return int(_ACKED.unpack_from(info, _ACKED_AT)[0])

    def pause_writing(self) -> None:
        """Stop reading: the client takes its answers more slowly than it asks."""
        self._is_deaf = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again: the client has taken most of its answers."""
        self._is_deaf = False
        when_taken, self.when_taken = self.when_taken, None
        if when_taken is not None:
            when_taken()
        self._read_again()
        self.tell_held()
        if self._has_more:
            self._host.had_turn(self)

    # the end

    def eof_received(self) -> bool:
        """Keep the connection open for answers under way, although the client sends no more."""
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget what was to be read and written, and report the end to the host."""
        self._has_more = False
        self._partial.clear()
        self._out.clear()
        self._host.peer_gone(self)

    def close(self) -> None:
        """Hang up after what was written."""
        if self._transport is not None:
            if self._out:
                self.flush()
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once; unsent answers are lost."""
        if self._transport is not None:
            self._transport.abort()
