"""What a front's services talk to, played: a connection whose socket a test reads, and the way to the clients role."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from store.message.host import Host

SOCKET_BYTES = 4 << 20


class PlayedRelay:
    """Who is told what a front says to the clients role."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []

    def tell(self, what: str, fields: dict[str, Any]) -> bool:
        self.said.append((what, fields))
        return True

    def ask(self, what: str, fields: dict[str, Any], _on_answer: object) -> bool:
        self.said.append((what, fields))
        return True


class PlayedPeer:
    """A connection: what is sent to its socket at once, and what is written."""

    def __init__(self, number: int = 1) -> None:
        self.number, self.address = number, Host("10.1.2.3", 54321)
        self.is_without_pulls, self.pulls, self.is_open = False, True, True
        self.near, self.far = socket.socketpair()
        self.near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        self.far.setblocking(False)
        self.written, self.rests, self.is_gathering = b"", 0, False
        self.room = 1 << 20
        self.when_taken: Callable[[], None] | None = None

    @property
    def idle_fd(self) -> int:
        return -1 if self.is_gathering else self.near.fileno()

    def write(self, *parts: bytes) -> None:
        self.written += b"".join(parts)

    def write_log(self, answer: Any) -> None:
        self.written += answer.head + b"".join(bytes(piece.view) for piece in answer.body)

    def flush(self) -> None:
        """It takes nothing now."""

    def write_rest(self, rest: bytes, error: int) -> None:
        assert not error
        self.written, self.rests = self.written + rest, self.rests + 1

    def take(self) -> bytes:
        """All that it got since."""
        parts = []
        try:
            while part := self.far.recv(1 << 20):
                parts.append(part)
        except BlockingIOError:
            written, self.written = self.written, b""
            return b"".join(parts) + written
        raise AssertionError("hung up")

    def close(self) -> None:
        self.near.close()
        self.far.close()
