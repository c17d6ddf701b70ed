"""From an accepted socket to a stream: plain or TLS by the first byte, with a deadline, however many come at once.

Implements: NettyRemotingServer.TlsModeHandler
The first byte is looked at and left where it is. A handshake runs on the loop between other connections' turns; the
oldest of too many is hung up on, so that strangers who never finish theirs push out one another. A connection is in
the server's table from its accept on, and can be hung up on at every step.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from engine.net import tls
from engine.net.log_lines import Seldom
from engine.net.tls import ServerTls
from engine.settings.tls_mode import TlsMode
from engine.shared_memory.cursors import TlsOutcome

log = logging.getLogger("slipstream.remoting")

READ_BYTES = 64 * 1024
HANDSHAKES_MAX = 256
SHUTDOWN_SECONDS = 2.0  # for the peer's word that it has heard our end


class Streams(NamedTuple):
    """The two streams of a connection: one to read from, one to write to."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Hangable(Protocol):
    """A connection that can be hung up on: an asyncio transport, or a socket before it has one."""

    def close(self) -> None:
        """Close after what was written has been sent."""

    def abort(self) -> None:
        """Close at once; what was written may be lost."""


class Refused(ConnectionError):
    """Raised where a connection is not served, after that was logged and counted."""


class Arrival:
    """An accepted socket that has no transport yet."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._step: asyncio.Future[Any] | None = None
        self.is_over = self.is_handed_over = False

    def abort(self) -> None:
        """Hang up: the step that is waited for ends."""
        self.is_over = True
        if self._step is not None:
            self._step.cancel()
        elif not self.is_handed_over:
            self.sock.close()

    close = abort

    async def step(self, work: asyncio.Future[Any], seconds: float) -> None:
        """Wait for one step. Raises TimeoutError, ConnectionAbortedError after `abort`, and what the step raises."""
        self._step = work
        if self.is_over:
            work.cancel()
        try:
            await asyncio.wait({work}, timeout=seconds)
            if not work.done():
                raise TimeoutError
            if work.cancelled():
                raise ConnectionAbortedError
            work.result()
        finally:
            if not work.done():
                work.cancel()
            self._step = None

    async def first_byte(self, seconds: float) -> int:
        """The first byte, which stays to be read. Raises as `step`, and ConnectionResetError without one."""
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[Any] = loop.create_future()
        loop.add_reader(self.sock, _note, readable)
        try:
            await self.step(readable, seconds)
        finally:
            loop.remove_reader(self.sock)
        peeked = self.sock.recv(1, socket.MSG_PEEK)
        if not peeked:
            raise ConnectionResetError
        return peeked[0]


def _note(ready: asyncio.Future[Any]) -> None:
    if not ready.done():
        ready.set_result(None)


class Opening:
    """Makes streams of the sockets of one server; `on_outcome` counts."""

    def __init__(self, how: ServerTls, on_outcome: Callable[[TlsOutcome], None]) -> None:
        self._how, self._on_outcome = how, on_outcome
        self._shaking: dict[Arrival, None] = {}  # hands; the oldest first
        self._seldom = Seldom(log)

    async def open(self, arrival: Arrival, peer: object, seconds: float) -> Streams:
        """The streams. `seconds` may pass before the first byte. Raises TimeoutError, OSError, Refused."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=READ_BYTES, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport = await self.connect(arrival, peer, seconds, protocol)
        return Streams(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def connect(
        self, arrival: Arrival, peer: object, seconds: float, protocol: asyncio.BaseProtocol
    ) -> asyncio.Transport:
        """Open a connection like `open`, for a caller with its own asyncio protocol."""
        try:
            if arrival.is_over:
                raise ConnectionAbortedError
            if self._how.context is None and not self._how.refuses_plaintext:
                return await self._connect(arrival, None, protocol)  # a TLS hello is no frame: `refuses_hello`
            byte = await arrival.first_byte(seconds)
            if byte == tls.HELLO:
                return await self._shake_hands(arrival, peer, protocol)
            if self._how.refuses_plaintext:
                self._on_outcome(TlsOutcome.PLAINTEXT_REFUSED)
                self._seldom.tell("%s: closed, it sent plaintext, only TLS is served (tls.server.mode=enforcing)", peer)
                raise Refused
            return await self._connect(arrival, None, protocol)
        except BaseException:
            arrival.sock.close()
            raise

    def refuses_hello(self, data: bytes, peer: object) -> bool:
        """Return whether a connection begins with TLS, which is not served; log and count it."""
        if data[0] != tls.HELLO or self._how.context is not None:
            return False
        self._on_outcome(TlsOutcome.TLS_REFUSED)
        self._seldom.tell("%s: closed, it asked for TLS, but TLS is not served: %s", peer, self._why_none)
        return True

    @property
    def _why_none(self) -> str:
        if self._how.mode is TlsMode.DISABLED:
            return "tls.server.mode=disabled"
        return "tls.config.file names no certificate for a server"

    async def _shake_hands(self, arrival: Arrival, peer: object, protocol: asyncio.BaseProtocol) -> asyncio.Transport:
        assert self._how.context is not None
        while len(self._shaking) >= HANDSHAKES_MAX:
            oldest = next(iter(self._shaking))
            del self._shaking[oldest]
            self._seldom.tell("%d TLS handshakes at once: closed the oldest", HANDSHAKES_MAX)
            oldest.abort()
        last_words, spare = tls.SpokenContext.collect(), arrival.sock.dup()
        self._shaking[arrival] = None
        try:
            transport = await self._connect(arrival, self._how.context.current(), protocol)
        except (OSError, TimeoutError) as error:
            self._on_outcome(TlsOutcome.FAILED)
            self._seldom.tell("%s: TLS failed: %s", peer, tls.words_of(error))
            with suppress(OSError):
                spare.send(b"".join(last_words))
            raise Refused from None
        finally:
            spare.close()
            self._shaking.pop(arrival, None)
        self._on_outcome(TlsOutcome.SERVED)
        return transport

    async def _connect(
        self, arrival: Arrival, context: ssl.SSLContext | None, protocol: asyncio.BaseProtocol
    ) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        limits = (
            {}
            if context is None
            else {
                "ssl_handshake_timeout": tls.HANDSHAKE_SECONDS,
                "ssl_shutdown_timeout": SHUTDOWN_SECONDS,
            }
        )
        arrival.is_handed_over = True
        connecting = loop.connect_accepted_socket(lambda: protocol, arrival.sock, ssl=context, **limits)
        if context is None:  # takes a turn of the loop, and cannot be ended on its way
            transport, _protocol = await connecting
        else:
            work = asyncio.ensure_future(connecting)
            await arrival.step(work, tls.HANDSHAKE_SECONDS)
            transport, _protocol = work.result()
        if arrival.is_over:
            transport.abort()
            raise ConnectionAbortedError
        return transport
