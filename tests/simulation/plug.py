"""A socket between a real shell and a simulated network: its one end the shell's, the other filled and emptied here."""

from __future__ import annotations

import socket

from tests.simulation.network import Connection
from tests.simulation.world import Actor

SHELL_BUFFER_BYTES = 4096  # what a shell may send that the network has no room for; the system doubles it
OWN_BUFFER_BYTES = 128 * 1024


class Plug:
    """A pair of sockets. All is done in the turns of its actor, nothing ever waits, so a seed is always one play."""

    def __init__(self, link: Connection, actor: Actor, *, is_callers: bool = False) -> None:
        """`is_callers`: the shell is the side that called."""
        self.link = link
        self._reads, self._writes = (link.to_caller, link.to_listener)[:: 1 if is_callers else -1]
        self.socket, self._own = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        for end, size in ((self.socket, SHELL_BUFFER_BYTES), (self._own, OWN_BUFFER_BYTES)):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        self.follow(actor)

    def follow(self, actor: Actor) -> None:
        """Let the network wake this actor from now on."""
        self._reads.reader = self._writes.writer = actor

    def inherit(self) -> None:
        """Have the shell's end in a child, whose parent closes its own."""
        self.socket = self.socket.dup()

    @property
    def is_closed(self) -> bool:
        """Whether the shell has closed its end."""
        return self.socket.fileno() < 0

    @property
    def has_more(self) -> bool:
        """Whether there is something that the shell was not given yet."""
        return bool(self._reads.inbox)

    def deliver(self, size: int | None = None, *, whole: bool = False) -> None:
        """Let the shell find what has come, or a part of it; behind the last of it the end."""
        reads = self._reads
        if reads.is_reset:
            self._own.close()
        elif self._own.fileno() >= 0:
            data = reads.take(size, whole=whole)
            try:
                taken = self._own.send(data) if data else 0
                if reads.is_ended and taken == len(data) and not reads.inbox:
                    self._own.shutdown(socket.SHUT_WR)
            except BlockingIOError:
                taken = 0
            except (BrokenPipeError, ConnectionResetError):
                taken = len(data)  # the shell has closed its end
            reads.inbox[:0] = data[taken:]

    def collect(self) -> None:
        """Send what the shell has written, as much as there is room for."""
        while (room := self._writes.room) and self._own.fileno() >= 0:
            data = self._read(room)
            if not data:
                return
            self._writes.send(data)

    def finish(self) -> None:
        """The shell has hung up, or is gone: what it wrote goes out, and behind it the end."""
        while self._own.fileno() >= 0 and (data := self._read(SHELL_BUFFER_BYTES)):
            self._writes.send(data, beyond=True)
        self._writes.end()
        self._reads.reader = self._writes.writer = None
        self.close()

    def close(self) -> None:
        """Give both ends back, without a word."""
        self.socket.close()
        self._own.close()

    def _read(self, size: int) -> bytes:
        try:
            return self._own.recv(size)
        except (BlockingIOError, ConnectionResetError):
            return b""
