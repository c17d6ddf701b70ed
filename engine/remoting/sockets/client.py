"""Asks one RocketMQ process something over remoting and waits for the answer: with a deadline, hanging up on nonsense.

Implements: NettyRemotingClient.invokeSync, for one connection (spec: remoting, 2 command fields)
"""

from __future__ import annotations

import itertools
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from engine.errors import EngineError
from engine.protocol.remoting.codes import REQUEST_VERSION, ResponseCode
from engine.protocol.remoting.frame import FrameSplitter, MalformedFrame, RemotingCommand, decode, encode
from ipc.host_port import host_port

if TYPE_CHECKING:
    from engine.net.tls import RenewedContext

READ_BYTES = 64 * 1024
ERRNO = re.compile(r"\[Errno ([0-9]{1,4})\]")
HUNG_UP = "it closed the connection: it is stopping, or its remotingAllowList does not list this host"
BY_PROTOCOL = {False: ", or it accepts only TLS", True: ", or it does not accept our certificate; its log says why"}


class PeerUnreachable(EngineError):
    """Raised when a peer gives no answer: no connection, a timeout, or the peer closed the connection.

    Next: `slipstream doctor HOST:PORT`; is it running, and is this its `listenPort`?
    """

    code = "PEER_UNREACHABLE"

    def __init__(self, address: str, reason: object) -> None:
        super().__init__(f"{address}: {_words(reason)}; is it running, and is this its listenPort?")


def _words(reason: object) -> object:
    """An error of the system in its own words: asyncio has its number in the text, of each address that it tried."""
    if isinstance(reason, OSError):
        number = ERRNO.search(str(reason))
        return os.strerror(int(number[1])) if number else reason.strerror or reason
    return reason


class PeerRefused(EngineError):
    """Raised when a peer refuses a request; `response_code` is RocketMQ's.

    Next: read the answer's text; with code 16 set the allow list that it names, else read that broker's log.
    """

    code = "PEER_REFUSED"

    def __init__(self, address: str, asked: int, answer: RemotingCommand) -> None:
        super().__init__(f"{address}: request {asked} was answered with code {answer.code}: {answer.remark}")
        self.response_code, self.remark = answer.code, answer.remark


class RemotingClient:
    """A connection to one address (`host:port`), made at the first request and again after it broke.

    Over TLS where `how` is given.
    """

    def __init__(self, address: str, timeout: float = 5.0, how: RenewedContext | None = None) -> None:
        self.address, self._timeout, self._how = address, timeout, how
        self._opaque = itertools.count(1)
        self._socket: socket.socket | None = None
        self._splitter = FrameSplitter()

    def ask(self, code: int, ext_fields: Mapping[str, str] | None = None, body: bytes = b"") -> RemotingCommand:
        """The answer, whose code is `ResponseCode.SUCCESS`. Raises PeerUnreachable, PeerRefused."""
        request = RemotingCommand(code, ext_fields=ext_fields, body=body, language="PYTHON", version=REQUEST_VERSION)
        answer = self.invoke(request)
        if answer.code != ResponseCode.SUCCESS:
            raise PeerRefused(self.address, code, answer)
        return answer

    def invoke(self, request: RemotingCommand) -> RemotingCommand:
        """The answer, whatever its code. Raises PeerUnreachable."""
        deadline, request = time.monotonic() + self._timeout, replace(request, opaque=next(self._opaque))
        try:
            if self._socket is None:
                place = host_port(self.address)
                if place is None:
                    raise ValueError("not an address of the form host:port")
                self._socket = self._connected(*place)
                self._splitter = FrameSplitter()
            self._socket.sendall(encode(request))
            return self._await(request.opaque, deadline)
        except (ConnectionResetError, BrokenPipeError) as reason:
            self.close()
            raise PeerUnreachable(self.address, HUNG_UP + BY_PROTOCOL[self._how is not None]) from reason
        except (OSError, ValueError, MalformedFrame) as reason:
            self.close()
            raise PeerUnreachable(self.address, self._why(reason)) from reason

    def _connected(self, host: str, port: int) -> socket.socket:
        """Return a new connection, with TLS if set. Raises OSError."""
        sock = socket.create_connection((host, port), timeout=self._timeout)
        if self._how is None:
            return sock
        try:
            return self._how.current().wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise

    def _why(self, reason: Exception) -> object:
        if self._how is None:
            return reason
        from engine.net.tls import words_of

        return words_of(reason)

    def _await(self, opaque: int, deadline: float) -> RemotingCommand:
        """Read until that answer; what else comes (a server may ask and push) is not for us."""
        assert self._socket is not None
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise ConnectionResetError(HUNG_UP)
            for answer in map(decode, self._splitter.feed(data)):
                if answer.is_response and answer.opaque == opaque:
                    return answer
        raise TimeoutError(f"no answer within {self._timeout:g} s")

    def close(self) -> None:
        """Close the connection, if there is one."""
        held, self._socket = self._socket, None
        if held is not None:
            held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
