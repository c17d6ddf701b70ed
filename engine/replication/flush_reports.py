"""Tells a master that waits for a slave's disk how far that is: a thread of the receiver, asleep on the flusher's word.

Eight bytes in one call do not mix with the reports of the receiver's own loop, which are eight bytes in one call.
"""

from __future__ import annotations

import logging
import socket
import threading

from engine.protocol.ha.hello import flushed_word
from ipc import waiting
from ipc.counters import Cursor

log = logging.getLogger("slipstream.receiver")

LOOK_MS = 200  # how late it sees that the connection is over
JOIN_S = 5.0


class FlushReports:
    """The reports of one connection at a time."""

    def __init__(self, flushed_offset: Cursor) -> None:
        self._flushed_offset = flushed_offset
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()

    def start(self, sock: socket.socket) -> None:
        """Report on this connection from now on, what is on disk already first."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._report, args=(sock, self._is_over), name="flushed", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread before the connection is closed: its descriptor may be reused soon."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._is_over.set()
            thread.join(JOIN_S)

    def tell(self, sock: socket.socket, reported: int) -> int:
        """Send the offset that is on disk, unless that is `reported`; return it. Raises OSError."""
        flushed = self._flushed_offset.read()
        if flushed != reported:
            sock.send(flushed_word(flushed))
        return flushed

    def _report(self, sock: socket.socket, is_over: threading.Event) -> None:
        reported = -1
        while not is_over.is_set():
            try:
                flushed = self.tell(sock, reported)
            except OSError as error:  # the receiver's loop sees the same, and hangs up
                log.debug("flushed offset not reported: %s", error)
                return
            if flushed == reported:
                waiting.await_change(self._flushed_offset, flushed, LOOK_MS)
            reported = flushed
