"""Serves remoting requests over TCP: frames in, answers out, one task a connection; what is answered is its caller's.

Implements: NettyRemotingServer, without TLS (spec: remoting, 3 server behaviour)
Bounded: connections, the frame that one may send, what waits to be sent to one that does not read, and the time
in which one may be silent. A connection that sends what is no frame is closed at once.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import NamedTuple

from engine.protocol.remoting import FRAME_BYTES_MAX, FrameSplitter, MalformedFrame, RemotingCommand, decode, encode

log = logging.getLogger("slipstream.remoting")

READ_BYTES = 64 * 1024
CONNECTIONS_MAX = 4096
IDLE_SECONDS = 120.0  # serverChannelMaxIdleTimeSeconds
STOP_SECONDS = 2.0
WRITE_SECONDS = 10.0  # one that does not take its answer for so long is hung up on

Answer = Callable[[RemotingCommand, int], RemotingCommand | None]


class Limits(NamedTuple):
    """What one connection may cost."""

    frame_bytes: int = FRAME_BYTES_MAX
    connections: int = CONNECTIONS_MAX
    idle_seconds: float = IDLE_SECONDS


class RemotingServer:
    """One listening port. `answer(request, connection)` gives the answer, None for none; `on_close(connection)`."""

    def __init__(self, answer: Answer, on_close: Callable[[int], None], limits: Limits | None = None) -> None:
        self._answer, self._on_close, self._limits = answer, on_close, limits or Limits()
        self._numbers = itertools.count(1)
        self._connections: dict[int, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None] | None] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port bound. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=READ_BYTES, reuse_address=True)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stop listening, hang up on everybody."""
        assert self._server is not None
        self._server.close()
        for number in list(self._connections):
            self.close_connection(number)
        talks = [task for task in self._tasks if task is not None]
        if talks:
            await asyncio.wait(talks, timeout=STOP_SECONDS)

    def close_connection(self, number: int) -> None:
        """Hang up on one connection, if it is still there."""
        writer = self._connections.get(number)
        if writer is not None:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, peer = next(self._numbers), writer.get_extra_info("peername")
        if len(self._connections) >= self._limits.connections:
            log.warning("%s: refused, there are %d connections", peer, len(self._connections))
            writer.close()
            return
        self._connections[number] = writer
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            await self._talk(number, reader, writer)
        except TimeoutError:
            log.info("%s: silent for %.0f s, or it does not read: closed", peer, self._limits.idle_seconds)
        except MalformedFrame as malformed:
            log.warning("%s: %s: %s", peer, malformed.code, malformed)
        except ConnectionError as error:
            log.debug("%s: %s", peer, error)
        finally:
            del self._connections[number]
            self._tasks.discard(task)
            writer.close()
            self._on_close(number)

    async def _talk(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        splitter = FrameSplitter(self._limits.frame_bytes)
        while data := await asyncio.wait_for(reader.read(READ_BYTES), self._limits.idle_seconds):
            for frame in splitter.feed(data):
                answer = self._answer(decode(frame), number)
                if answer is not None:
                    writer.write(encode(answer))
            await asyncio.wait_for(writer.drain(), WRITE_SECONDS)
