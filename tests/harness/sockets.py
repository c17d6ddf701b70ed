"""Reading from a socket with a timeout."""

from __future__ import annotations

import socket


def exactly(sock: socket.socket, count: int) -> bytes:
    """So many bytes, fewer only where it hung up: with a timeout MSG_WAITALL waits for the first one alone."""
    data = bytearray()
    while len(data) < count and (part := sock.recv(count - len(data))):
        data += part
    return bytes(data)
