"""Serves remoting requests over TCP: frames in, answers out, one task a connection; what is answered is its caller's.

Implements: NettyRemotingServer (spec: remoting, 3 server behaviour)
Bounded: connections and the bytes that all of them have in flight (`engine.remoting.sockets.connections`), the frame
that one may send and the time for it, how long one may be silent or not read, and how long one is answered while others
wait. A connection that sends what is no frame is closed at once, and one whose address may not connect before it is
read.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from engine.net import tls
from engine.net.listeners import listen
from engine.net.log_lines import Seldom
from engine.net.tls import ServerTls
from engine.protocol.access import rights
from engine.protocol.access.rights import Rules
from engine.protocol.remoting.codes import REQUEST_VERSION, ResponseCode
from engine.protocol.remoting.frame import (
    FRAME_BYTES_MAX,
    FrameSplitter,
    MalformedFrame,
    RemotingCommand,
    decode,
    encode,
)
from engine.remoting.sockets.acceptor import Acceptor
from engine.remoting.sockets.connections import (
    BYTES_IN_FLIGHT_MAX,
    Bounds,
    Connection,
    Connections,
    allowed_connections,
)
from engine.remoting.sockets.opening import READ_BYTES, Arrival, Opening, Streams
from engine.settings.keys import REMOTING_CONNECTIONS
from engine.shared_memory.cursors import TlsOutcome

log = logging.getLogger("slipstream.remoting")

IDLE_SECONDS = 120.0  # serverChannelMaxIdleTimeSeconds
FRAME_SECONDS = 60.0  # from a frame's first byte to its last
STOP_SECONDS = 2.0
WRITE_SECONDS = 10.0  # one that takes nothing of its answer for so long is hung up on
TURN_SECONDS = 0.01  # then it is the turn of other connections

Answered = RemotingCommand | None
Answer = Callable[[RemotingCommand, int], Answered | Awaitable[Answered]]


class ServerLimits(NamedTuple):
    """The bounds of what one connection may cost, and all of them."""

    frame_bytes: int = FRAME_BYTES_MAX
    connections: int = REMOTING_CONNECTIONS
    idle_seconds: float = IDLE_SECONDS
    frame_seconds: float = FRAME_SECONDS
    bytes_in_flight: int = BYTES_IN_FLIGHT_MAX


class RemotingServer:
    """One listening port. `answer(request, connection)` gives the answer, None for none, or what it is awaited from.

    `on_close(connection)` is called at every end; connections for which `is_kept` is true are the last to make room.
    `rules` say which addresses may connect, and what each may ask.
    `how` says whether TLS is served, and what else; `on_tls` gets the outcome of each first byte.
    """

    def __init__(
        self,
        answer: Answer,
        on_close: Callable[[int], None],
        limits: ServerLimits | None = None,
        is_kept: Callable[[int], bool] = lambda _connection: False,
        rules: Rules | None = None,
        how: ServerTls = tls.PLAINTEXT,
        on_tls: Callable[[TlsOutcome], None] = lambda _outcome: None,
    ) -> None:
        self._answer, self._on_close = answer, on_close
        self._limits, self._rules = limits or ServerLimits(), rules or Rules()
        bounds = Bounds(allowed_connections(self._limits.connections), self._limits.bytes_in_flight)
        self._connections = Connections(bounds, is_kept)
        self._opening = Opening(how, on_tls)
        self._tasks: set[asyncio.Task[None]] = set()
        self._acceptor: Acceptor | None = None
        self._seldom = Seldom(log)

    async def start(self, host: str, port: int) -> int:
        """Listen; the port bound. Raises OSError."""
        return await self.start_on(listen(host, port))

    async def start_on(self, listening: socket.socket) -> int:
        """Serve like `start`, on a socket that listens already."""
        bound: int = listening.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._acceptor = Acceptor(loop, listening, self._arrived, self._connections.make_room)
        return bound

    async def stop(self) -> None:
        """Stop listening, hang up on everybody."""
        assert self._acceptor is not None
        self._acceptor.stop()
        for connection in self._connections.all():
            connection.transport.close()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=STOP_SECONDS)
        for connection in self._connections.all():
            self._connections.hang_up(connection)

    def close_connection(self, number: int) -> None:
        """Hang up on one connection, if it is still there."""
        connection = self._connections.find(number)
        if connection is not None:
            connection.transport.close()

    def _arrived(self, sock: socket.socket) -> None:
        """Admit an accepted socket to the table, or close it."""
        arrival = Arrival(sock)
        connection = self._admit(sock, arrival)
        if connection is None:
            sock.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(connection, arrival))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection, arrival: Arrival) -> None:
        peer = connection.peer
        try:
            streams = await self._opening.open(arrival, peer, self._limits.idle_seconds)
            connection.transport, writer = streams.writer.transport, streams.writer
            await self._talk(connection, streams)
            writer.close()
            await asyncio.wait_for(writer.wait_closed(), WRITE_SECONDS)  # it may still read
        except TimeoutError:
            self._seldom.tell("%s: closed, it was silent, too slow, or did not read", peer, level=logging.INFO)
        except MalformedFrame as malformed:
            self._seldom.tell("%s: %s: %s", peer, malformed.code, malformed)
        except OSError as error:  # the connection's, TLS's included
            log.debug("%s: %s", peer, error)
        except Exception:
            self._seldom.tell("%s: closed, its request failed", peer, level=logging.ERROR, error=True)
        finally:
            self._connections.hang_up(connection)
            self._on_close(connection.number)

    def _admit(self, sock: socket.socket, arrival: Arrival) -> Connection | None:
        """Enter it, with what its address may do; None where it may not connect, or finds no room."""
        try:
            peer, own = sock.getpeername(), sock.getsockname()
        except OSError:  # it is gone
            return None
        allowed = self._rules.rights_of(peer[0], own[0])
        if not allowed.may_connect:
            self._seldom.tell("%s may not connect: %s does not list its address", peer, rights.CONNECT_KEY)
            return None
        connection = self._connections.admit(arrival, peer)
        if connection is not None:
            connection.rights = allowed
        return connection

    async def _talk(self, connection: Connection, streams: Streams) -> None:
        reader, writer = streams
        splitter, limits = FrameSplitter(self._limits.frame_bytes), self._limits
        left, is_begun = limits.idle_seconds, False
        while data := await asyncio.wait_for(reader.read(READ_BYTES), left):
            if not is_begun and self._opening.refuses_hello(data, connection.peer):
                return
            is_begun = True
            begun, frames = time.monotonic(), splitter.feed(data)
            for frame in frames:
                if writer.transport.is_closing():  # hung up on: nobody takes the answers
                    return
                self._connections.spoke(connection)
                self._connections.hold(connection, len(frame) + splitter.pending_bytes, for_peer=False)
                await self._respond(connection, decode(frame), writer)
                if time.monotonic() - begun > TURN_SECONDS:
                    await asyncio.sleep(0)
                    begun = time.monotonic()
            self._connections.hold(connection, splitter.pending_bytes, for_peer=True)
            left = limits.idle_seconds
            if connection.waits_since is not None:
                left = min(left, connection.waits_since + limits.frame_seconds - time.monotonic())

    async def _respond(self, connection: Connection, request: RemotingCommand, writer: asyncio.StreamWriter) -> None:
        answer: Answered | Awaitable[Answered]
        refusal = None if request.is_response else rights.refusal(request.code, connection.rights)
        if refusal is None:
            answer = self._answer(request, connection.number)
        else:
            self._seldom.tell("%s", refusal)
            answer = request.answer(ResponseCode.NO_PERMISSION, refusal, version=REQUEST_VERSION)
            answer = None if request.is_oneway else answer
        if answer is not None and not isinstance(answer, RemotingCommand):
            answer = await answer
        if answer is None or writer.transport.is_closing():
            return
        try:
            frame = encode(answer)
        except MalformedFrame as malformed:
            remark = f"the answer has no frame: {malformed}"
            frame = encode(request.answer(ResponseCode.SYSTEM_ERROR, remark, version=answer.version))
        writer.write(frame)
        await self._sent(connection, writer)

    async def _sent(self, connection: Connection, writer: asyncio.StreamWriter) -> None:
        """Wait until little is left to be taken; as long as the peer takes something. Raises TimeoutError."""
        while left := writer.transport.get_write_buffer_size():
            self._connections.hold(connection, left, for_peer=True)
            try:
                await asyncio.wait_for(writer.drain(), WRITE_SECONDS)
                return
            except TimeoutError:
                if writer.transport.get_write_buffer_size() >= left:
                    raise
