"""Carries one replication connection between its TLS socket and a plain one, which sender or receiver take for it.

It needs Slipstream at both ends, and haTlsMode=enforcing. The plain end is half of a socket pair, so that the compiled
loops, sendfile included, know nothing of TLS. What they gain by never copying is lost here: each byte is copied twice
and enciphered. One thread does both directions, because OpenSSL lets no two threads at one connection. Bytes under way
are bounded. When one end closes, the other gets what was sent before, within FINISH_SECONDS, and is closed, too.
"""

from __future__ import annotations

import logging
import select
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from engine.net import tls
from ipc.stop_signals import STOP_SIGNALS

log = logging.getLogger("slipstream.tls")

CHUNK_BYTES = 64 * 1024
PAIR_BYTES = 512 * 1024  # what the kernel may hold between the two
FINISH_SECONDS = 2.0
GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL
_Ended = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)


class _Way:
    """One direction: what was read and not written yet."""

    def __init__(self, read: Callable[[memoryview], int], write: Callable[[memoryview], int]) -> None:
        self._read, self._write = read, write
        self._space = memoryview(bytearray(CHUNK_BYTES))
        self.left = self._space[:0]
        self.has_ended = self.is_broken = False  # nothing more can be read, or nothing more written

    @property
    def has_rest(self) -> bool:
        """Whether there may be more to carry this way."""
        return bool(self.left) or not self.has_ended

    def move(self) -> tuple[bool, int]:
        """Write what is left, else read; whether anything moved, and for which event this way waits otherwise.

        Raises SSLError.
        """
        if self.left:
            try:
                count = self._write(self.left)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return False, select.POLLOUT
            except _Ended:
                self.left, self.has_ended, self.is_broken = self._space[:0], True, True
                return True, 0
            self.left = self.left[count:]
            return True, 0
        if self.has_ended:
            return False, 0
        try:
            count = self._read(self._space)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False, select.POLLIN
        except _Ended:
            count = 0
        self.left, self.has_ended = self._space[:count], not count
        return True, 0


class TlsRelay:
    """One connection: `plain` is the end to talk to. `failure` says why there is no TLS, once that is known."""

    def __init__(self, wire: ssl.SSLSocket, name: str) -> None:
        """`wire` does not block; where its handshake is still due, it comes first."""
        self.failure: str | None = None
        self.plain, self._inner = socket.socketpair()
        for end in (self.plain, self._inner):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PAIR_BYTES)
        self._inner.setblocking(False)
        self._wire = wire
        self._out = _Way(self._inner.recv_into, wire.send)
        self._in = _Way(wire.recv_into, self._inner.send)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def finish(self, seconds: float = FINISH_SECONDS) -> None:
        """Wait until what was written to `plain`, which is closed, is on its way."""
        self._thread.join(seconds)

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # they are the role's, which sleeps in another thread
        try:
            self._shake_hands()
            self._carry()
        except (OSError, ValueError) as error:
            if isinstance(error, ssl.SSLError | TimeoutError) or not self._stands:
                self.failure = tls.words_of(error)
            log.debug("TLS relay: %s", error)
        finally:
            self._inner.close()
            self._wire.close()

    @property
    def _stands(self) -> bool:
        return self._wire.version() is not None

    def _shake_hands(self) -> None:
        """Shake hands within HANDSHAKE_SECONDS. Raises TimeoutError, SSLError, OSError."""
        until = time.monotonic() + tls.HANDSHAKE_SECONDS
        poll, watched = select.poll(), self._wire.fileno()
        poll.register(self._inner, 0)  # its other end's close alone
        while True:
            try:
                self._wire.do_handshake()
                return
            except ssl.SSLWantReadError:
                poll.register(watched, select.POLLIN)
            except ssl.SSLWantWriteError:
                poll.register(watched, select.POLLOUT)
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if any(fd != watched for fd, _events in poll.poll(left * 1000)):
                raise ConnectionAbortedError

    def _carry(self) -> None:
        """Copy both ways until one end has closed and the other has the bytes sent before. Raises SSLError."""
        poll, until, is_left = select.poll(), 0.0, False  # the role has left: its end is closed
        while True:
            out_moved, out_waits = self._out.move()
            in_moved, in_waits = self._in.move()
            is_left = is_left or self._in.is_broken
            if is_left or self._out.has_ended or self._in.has_ended:
                until = until or time.monotonic() + FINISH_SECONDS
                if not self._has_rest(is_left) or time.monotonic() >= until:
                    break
            if out_moved or in_moved:
                continue
            _watch(poll, self._wire, (out_waits & select.POLLOUT) | (in_waits & select.POLLIN))
            _watch(poll, self._inner, (out_waits & select.POLLIN) | (in_waits & select.POLLOUT), always=not is_left)
            events = dict(poll.poll(FINISH_SECONDS * 1000 if until else None))
            is_left = is_left or bool(events.get(self._inner.fileno(), 0) & GONE)
        if self._in.is_broken or not self._in.has_ended:  # the wire stands
            self._say_goodbye(poll, until)

    def _say_goodbye(self, poll: select.poll, until: float) -> None:
        """End the wire in order: what the peer says until it hangs up is read, or a reset would undo what was sent."""
        with suppress(OSError, ValueError):
            self._wire.unwrap()  # our word that this is the end; theirs is not waited for
        with suppress(OSError):
            self._wire.shutdown(socket.SHUT_WR)  # from here on it is no TLS socket to Python
            poll.register(self._wire, select.POLLIN)
            while (left := until - time.monotonic()) > 0:
                if dict(poll.poll(left * 1000)).get(self._wire.fileno()) and not self._wire.recv(CHUNK_BYTES):
                    return

    def _has_rest(self, is_left: bool) -> bool:
        """Whether what came before the end is still under way: to a wire that stands, else to a role that is there."""
        if is_left or (self._out.has_ended and not self._out.is_broken):
            return self._out.has_rest
        return self._in.has_rest


def _watch(poll: select.poll, sock: socket.socket, events: int, *, always: bool = False) -> None:
    """Wait for these events; for none at all unless `always`: a poll tells an end even if it is asked for nothing."""
    poll.register(sock, events)
    if not events and not always:
        poll.unregister(sock)


def of_caller(sock: socket.socket, how: tls.RenewedContext | None) -> socket.socket | None:
    """An accepted connection, as which it is read from then on: a handshake is a part of the first reads.

    None where it is gone already.
    """
    if how is None:
        return sock
    try:
        wire = how.current().wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
    except (OSError, ValueError):
        sock.close()
        return None
    try:
        wire.getpeername()  # of one that was gone Python makes no TLS, and would read plaintext
    except OSError:
        wire.close()
        return None
    return wire


def first_bytes(sock: socket.socket, count: int, is_gone: bool) -> bytes | None:
    """Return what a caller said, of TLS the part for us; empty where that was all, None where more may come.

    Raises SSLError.
    """
    try:
        return sock.recv(count)
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return b"" if is_gone else None
    except ssl.SSLEOFError:
        return b""
    except ssl.SSLError:
        raise
    except OSError:  # it went before it said anything
        return b""


@contextmanager
def plain_of(sock: socket.socket) -> Iterator[socket.socket]:
    """Yield a socket that a sender can use: the socket itself, or a relay's end.

    What was written there is on its way at the end.
    """
    if not isinstance(sock, ssl.SSLSocket):
        yield sock
        return
    sock.setblocking(False)
    relay = TlsRelay(sock, "TlsRelay")
    try:
        yield relay.plain
    finally:
        relay.plain.close()
        relay.finish()


def of_connected(sock: socket.socket, how: tls.RenewedContext, host: str) -> TlsRelay:
    """The relay of a connection just made to `host`; its handshake begins now, and what is written waits for it."""
    sock.setblocking(False)
    wire = how.current().wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    return TlsRelay(wire, "TlsRelay")
