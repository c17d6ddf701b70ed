"""A client of RocketMQ's remoting protocol with many requests on their way, over one connection of a fixed port."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, NamedTuple

ONEWAY = 2
WINDOW = 256
TIMEOUT_SECONDS = 60


class Answer(NamedTuple):
    """What the broker said to one request."""

    code: int
    remark: str
    fields: dict[str, str]
    body: bytes


class Client:
    """Requests are answered under the numbers that the caller gives them; `answers` is where they arrive."""

    def __init__(self, address: str, port: int, source_port: int) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.bind((address, source_port))
        self._socket.settimeout(TIMEOUT_SECONDS)
        self._socket.connect((address, port))
        self.answers: dict[int, Answer] = {}
        self._waiting: set[int] = set()
        self._received = bytearray()
        self._own_numbers = 2**31 - 1

    def send(self, number: int, code: int, fields: dict[str, Any], body: bytes = b"", *, oneway: bool = False) -> None:
        """Put a request on its way; waits while too many are."""
        request = {
            "code": code,
            "language": "PYTHON",
            "version": 407,
            "opaque": number,
            "flag": ONEWAY if oneway else 0,
            "extFields": {name: _text(value) for name, value in fields.items() if value is not None},
        }
        header = json.dumps(request).encode()
        self._socket.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        if not oneway:
            self._waiting.add(number)
            while len(self._waiting) >= WINDOW:
                self._receive()

    def ask(self, code: int, fields: dict[str, Any], body: bytes = b"") -> Answer:
        """A request of the driver's own, and its answer."""
        self._own_numbers -= 1
        self.send(self._own_numbers, code, fields, body)
        return self.wait_for(self._own_numbers)

    def wait_for(self, number: int) -> Answer:
        """The answer to one request."""
        while number in self._waiting:
            self._receive()
        return self.answers[number]

    def drain(self) -> None:
        """Wait for all that is on its way; a last request also makes sure of those that are not answered."""
        while self._waiting:
            self._receive()

    def _receive(self) -> None:
        part = self._socket.recv(1 << 16)
        if not part:
            raise ConnectionError("the broker hung up")
        self._received += part
        while len(self._received) >= 4:
            (length,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + length:
                return
            self._take(bytes(self._received[4 : 4 + length]))
            del self._received[: 4 + length]

    def _take(self, frame: bytes) -> None:
        header_length = int.from_bytes(frame[1:4], "big")
        header = json.loads(frame[4 : 4 + header_length])
        number = header["opaque"]
        self._waiting.discard(number)
        body = frame[4 + header_length :]
        self.answers[number] = Answer(header["code"], header.get("remark") or "", header.get("extFields") or {}, body)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
