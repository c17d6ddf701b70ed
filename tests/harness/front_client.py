"""A client's connection to a front, by hand; the end of a test closes it."""

from __future__ import annotations

import socket
from typing import ClassVar

from engine.protocol.remoting.frame import FrameSplitter, RemotingCommand, decode, encode

SECONDS = 120


class FrontClient:
    """One connection."""

    open: ClassVar[list[FrontClient]] = []

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), SECONDS)
        self.open.append(self)
        self._splitter = FrameSplitter()
        self._frames: list[bytes] = []

    def send(self, *requests: RemotingCommand) -> None:
        """Requests, in one write."""
        self.sock.sendall(b"".join(map(encode, requests)))

    def take(self) -> RemotingCommand:
        """The next frame that comes."""
        while not self._frames:
            data = self.sock.recv(1 << 16)
            assert data, "hung up"
            self._frames += self._splitter.feed(data)
        return decode(self._frames.pop(0))

    def ask(self, code: int, body: bytes = b"", **fields: str) -> RemotingCommand:
        """A request, and what comes next."""
        self.send(RemotingCommand(code, 1, ext_fields=fields, body=body))
        return self.take()

    def is_hung_up(self) -> bool:
        """Whether the other end ended it."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    @classmethod
    def close_all(cls) -> None:
        """Those that a test left open."""
        while cls.open:
            cls.open.pop().sock.close()
