"""Accepts connections of a listening socket on the event loop, some a turn; pauses where there is no room for more."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from engine.net.log_lines import Seldom

log = logging.getLogger("slipstream.remoting")

ACCEPTS_PER_TURN = 16  # what is hung up on for them gives its descriptor back a turn later
PAUSE_SECONDS = 0.1
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
BROKEN = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EFAULT)


class Acceptor:
    """`on_accept(socket)` is called for each; `make_room()` when the system has no descriptor for one more."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        on_accept: Callable[[socket.socket], None],
        make_room: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._listening, self._on_accept, self._make_room = listening, on_accept, make_room
        self._paused: asyncio.TimerHandle | None = None
        self._seldom = Seldom(log)
        listening.setblocking(False)
        self._loop.add_reader(listening, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, _address = self._listening.accept()
            except BlockingIOError:
                return
            except OSError as error:  # of that connection, which is gone, or for want of room
                if error.errno in BROKEN:
                    raise
                if error.errno in NO_ROOM:
                    self._seldom.tell("a connection cannot be accepted: %s", error.strerror)
                    self._make_room()
                    self._loop.remove_reader(self._listening)
                    self._paused = self._loop.call_later(PAUSE_SECONDS, self._go_on)
                    return
                continue
            sock.setblocking(False)
            self._on_accept(sock)

    def _go_on(self) -> None:
        self._paused = None
        self._loop.add_reader(self._listening, self._accept)

    def stop(self) -> None:
        """Stop accepting, and close the listening socket."""
        if self._paused is not None:
            self._paused.cancel()
        else:
            self._loop.remove_reader(self._listening)
        self._listening.close()
