"""A socket for http.client whose answer comes by one deadline, however slowly a stranger sends it."""

from __future__ import annotations

import io
import socket
import time
from typing import Any

READ_BYTES = 1 << 16


class TimedSocket(io.RawIOBase):
    """A socket as http.client uses one, each step of which ends by one deadline: also what drips byte by byte."""

    def __init__(self, plain: socket.socket, deadline: float) -> None:
        self._socket, self._deadline = plain, deadline

    def _limit(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        self._socket.settimeout(left)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._limit()
        return self._socket.recv_into(buffer)

    def sendall(self, data: bytes) -> None:
        self._limit()
        self._socket.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return the stream that a response is read from."""
        return io.BufferedReader(self, READ_BYTES)

    def close(self) -> None:
        """Do nothing: a response is read after the library has closed the sending side."""
