"""Answers whose body is ranges of the log: sent from the file where they are large, gathered into one write where not.

Implements: ManyMessageTransfer, transferMsgByHeap (spec: remoting, 7)
What the socket does not take at once is handed to the transport in place, which keeps the order and the accounts.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from dataclasses import dataclass

from engine.front.connections.log_body_kernel import SENDFILE_BYTES, send_range
from store.files.segment import Segment

PASSES = (errno.EAGAIN, errno.EINTR, errno.ENOBUFS, errno.ENOMEM)


class LogFile(Segment):
    """A segment that is closed when nobody refers to it any more: answers on their way do."""

    def __del__(self) -> None:
        self.close()


@dataclass(slots=True)
class LogRange:
    """A range of bytes in one log file."""

    file: LogFile
    position: int
    length: int

    @property
    def view(self) -> memoryview:
        """The bytes of the range, in the mapped file."""
        return self.file.view[self.position : self.position + self.length]


@dataclass(slots=True)
class LogAnswer:
    """An answer: its frame up to the body, and the body."""

    head: bytes
    body: list[LogRange]

    @property
    def bytes(self) -> int:
        """Return the size of head and body together."""
        return len(self.head) + sum(piece.length for piece in self.body)


Part = bytes | memoryview | LogAnswer


def send(transport: asyncio.Transport, fd: int, parts: Sequence[Part], *, is_plain: bool) -> None:
    """Send all of a turn, in this order; `fd` is the transport's socket, where it `is_plain`, not TLS."""
    pending: list[bytes | memoryview] = []
    for part in parts:
        if not isinstance(part, LogAnswer):
            pending.append(part)
            continue
        pending.append(part.head)
        for piece in part.body:
            if piece.length < SENDFILE_BYTES or not is_plain or transport.get_write_buffer_size():
                pending.append(piece.view)
                continue
            _send_file(transport, fd, b"".join(pending), piece)
            pending = []
    if pending:
        _write(transport, pending)


def _send_file(transport: asyncio.Transport, fd: int, head: bytes, piece: LogRange) -> None:
    sent = int(send_range(fd, head, piece.file.fd, piece.position, piece.length))
    if sent < 0:
        if -sent not in PASSES:
            transport.abort()
            return
        sent = 0
    if sent < len(head):
        transport.write(memoryview(head)[sent:])
        sent = len(head)
    rest = sent - len(head)
    if rest < piece.length:
        transport.write(piece.view[rest:])


def _write(transport: asyncio.Transport, pending: list[bytes | memoryview]) -> None:
    """Write all parts in one call; large parts are not copied if the socket is busy anyway."""
    if len(pending) == 1:
        transport.write(pending[0])
    elif not transport.get_write_buffer_size():
        transport.write(b"".join(pending))
    else:
        transport.writelines(pending)
