"""A connection of a serving process to another one: asked from its event loop, made again when it broke.

Implements: NettyRemotingClient.invokeSync, as a coroutine (spec: remoting, 2 command fields)
One question at a time; every one has a deadline. Names are resolved at each connect.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from ssl import SSLError

from engine.net import tls
from engine.net.tls import RenewedContext
from engine.protocol.remoting.frame import FrameSplitter, MalformedFrame, RemotingCommand, decode, encode
from ipc.host_port import host_port

READ_BYTES = 64 * 1024


class NoAnswer(ConnectionError):
    """Raised when there is no answer: no connection, none in time, or nonsense."""

    def __init__(self, address: str, reason: object) -> None:
        super().__init__(f"{address}: {reason or 'no answer in time'}")


class RemotingLink:
    """A connection to one address (`host:port`), over TLS where `how` is given."""

    def __init__(self, address: str, timeout: float, how: RenewedContext | None = None) -> None:
        self.address, self._timeout, self._how = address, timeout, how
        self._opaque = 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: RemotingCommand) -> RemotingCommand:
        """The answer, whatever its code. Raises NoAnswer."""
        self._opaque += 1
        try:
            return await asyncio.wait_for(self._ask(replace(request, opaque=self._opaque)), self._timeout)
        except (OSError, ValueError, MalformedFrame, TimeoutError) as reason:
            self.close()
            raise NoAnswer(self.address, tls.words_of(reason) if isinstance(reason, SSLError) else reason) from reason

    async def _ask(self, request: RemotingCommand) -> RemotingCommand:
        if self._streams is None or self._streams[0].at_eof():
            self.close()
            place = host_port(self.address)
            if place is None:
                raise ValueError("not an address of the form host:port")
            context = self._how.current() if self._how else None
            self._streams = await asyncio.open_connection(*place, ssl=context)
        reader, writer = self._streams
        writer.write(encode(request))
        await writer.drain()
        splitter = FrameSplitter()
        while data := await reader.read(READ_BYTES):
            for answer in map(decode, splitter.feed(data)):
                if answer.is_response and answer.opaque == request.opaque:
                    return answer
        raise ConnectionError("it closed the connection")

    async def tell(self, request: RemotingCommand) -> None:
        """Send what nobody answers, if there is a connection. Raises NoAnswer."""
        if self._streams is None:
            return
        try:
            self._streams[1].write(encode(request))
            await asyncio.wait_for(self._streams[1].drain(), self._timeout)
        except (OSError, TimeoutError) as reason:
            self.close()
            raise NoAnswer(self.address, reason) from reason

    def close(self) -> None:
        """Close the connection; the next question makes a new one."""
        streams, self._streams = self._streams, None
        if streams is not None:
            with suppress(RuntimeError):  # the loop has ended
                transport = streams[1].transport
                transport.close() if self._how is None else transport.abort()  # TLS's goodbye outlives the loop
