"""One connection to a name server or a broker: many questions at once, answered in any order, pushes handed over.

Implements: NettyRemotingClient, for one address
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from engine.clients.access import Credentials, signed
from engine.protocol.remoting.codes import REQUEST_VERSION, ResponseCode
from engine.protocol.remoting.frame import (
    ONEWAY_FLAG,
    FrameSplitter,
    MalformedFrame,
    RemotingCommand,
    decode,
    encode,
)
from engine.remoting.sockets.client import HUNG_UP, PeerRefused, PeerUnreachable
from ipc.host_port import host_port

if TYPE_CHECKING:
    from engine.net.tls import RenewedContext

READ_BYTES = 256 * 1024
SILENT_SECONDS = 1.0  # without an answer, or anything else, before a connection is given up
UNREAD_BYTES_MAX = 4 << 20  # answers that a peer has not read
CLOSE_SECONDS = 1.0
NOT_SERVED = "this client does not support this request"
Pushed = Callable[[RemotingCommand], RemotingCommand | None]  # the answer; None: nobody serves that


class Connection:
    """To `address` (`host:port`), made at the first question and again after it broke."""

    def __init__(
        self,
        address: str,
        timeout: float,
        how: RenewedContext | None = None,
        on_push: Pushed | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.address, self._timeout, self._how = address, timeout, how
        self._on_push, self._credentials = on_push, credentials
        self._opaques = itertools.count(1)
        self._asked: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._read_at = 0.0  # monotonic

    async def ask(
        self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"", timeout: float | None = None
    ) -> RemotingCommand:
        """The answer, whatever its code. Raises PeerUnreachable."""
        request = self._request(code, fields, body)
        opaque = request.opaque
        seconds, began = self._timeout if timeout is None else timeout, time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                writer = await self._opened()
                answer: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
                self._asked[opaque] = answer
                writer.write(encode(request))
                await writer.drain()
                return await answer
        except TimeoutError:
            silent = PeerUnreachable(self.address, f"no answer within {seconds:g} s")
            if seconds >= SILENT_SECONDS and self._read_at < began:  # it may lead nowhere any more: make another one
                self._broke(silent)
            raise silent from None
        except (OSError, ValueError, MalformedFrame) as reason:
            self._broke(reason)
            raise PeerUnreachable(self.address, reason) from reason
        finally:
            self._asked.pop(opaque, None)

    async def need(
        self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"", timeout: float | None = None
    ) -> RemotingCommand:
        """The answer, whose code is SUCCESS. Raises PeerUnreachable, PeerRefused."""
        answer = await self.ask(code, fields, body, timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise PeerRefused(self.address, code, answer)
        return answer

    async def tell(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Send what nobody answers. Raises PeerUnreachable."""
        request = self._request(code, fields, body, ONEWAY_FLAG)
        try:
            async with asyncio.timeout(self._timeout):
                writer = await self._opened()
                writer.write(encode(request))
                await writer.drain()
        except (OSError, ValueError, TimeoutError) as reason:
            self._broke(reason)
            raise PeerUnreachable(self.address, reason) from reason

    def _request(self, code: int, fields: Mapping[str, str] | None, body: bytes, flag: int = 0) -> RemotingCommand:
        if self._credentials is not None:
            fields = signed(fields, body, self._credentials)
        opaque = next(self._opaques)
        return RemotingCommand(
            code, opaque, flag, ext_fields=fields, body=body, language="PYTHON", version=REQUEST_VERSION
        )

    async def _opened(self) -> asyncio.StreamWriter:
        async with self._opening:
            if self._writer is None:
                place = host_port(self.address)
                if place is None:
                    raise ValueError("not an address of the form host:port")
                context = self._how.current() if self._how else None
                reader, self._writer = await asyncio.open_connection(*place, ssl=context)
                self._reading = asyncio.get_running_loop().create_task(self._read(reader, self._writer))
            return self._writer

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        splitter, reason = FrameSplitter(), Exception(HUNG_UP)
        try:
            while data := await reader.read(READ_BYTES):
                self._read_at = time.monotonic()
                for command in map(decode, splitter.feed(data)):
                    self._take(command)
        except Exception as error:  # whatever a peer sent: nobody would read the answers to further questions
            reason = error
        if self._writer is writer:  # else there is a new connection by now
            self._broke(reason)

    def _take(self, command: RemotingCommand) -> None:
        if command.is_response:
            answer = self._asked.get(command.opaque)
            if answer is not None and not answer.done():
                answer.set_result(command)
            return
        try:
            said = self._on_push(command) if self._on_push is not None else None
        except Exception as error:  # of a body that has another shape
            said = command.answer(ResponseCode.SYSTEM_ERROR, f"malformed: {error}", version=REQUEST_VERSION)
        if not command.is_oneway and self._writer is not None:
            if self._writer.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
                self._broke(ConnectionResetError("it asks and does not read the answers"))
                return
            code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            self._writer.write(encode(said or command.answer(code, NOT_SERVED, version=REQUEST_VERSION)))

    def _broke(self, reason: Exception) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError(str(reason)))

    async def close(self) -> None:
        """Close the connection; open questions fail. Waits a moment for its socket to be closed, too."""
        reading, self._reading, writer = self._reading, None, self._writer
        self._broke(ConnectionResetError("closed"))
        if reading is not None:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
        if writer is not None:
            with suppress(OSError, TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), CLOSE_SECONDS)
