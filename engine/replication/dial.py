"""Connects a slave to its master: looks up the name, tries the addresses in turn, checks who answers, begins TLS.

Follows: ha_listen_port, to recognize this broker's own HA port
"""

from __future__ import annotations

import errno
import socket
import struct
from typing import NamedTuple

from engine.net.tls import RenewedContext
from engine.protocol.ha.wire import NOT_CONNECTED, CloseReason
from engine.replication import tls_relay
from engine.replication.tls_relay import TlsRelay
from engine.shared_memory import addresses
from ipc import descriptors
from ipc.counters import Cursor

CONNECT_TIMEOUT_MS = 5000
SOCKET_TIMEOUT_S = 1
TIMEVAL = struct.Struct("@ll")

Address = tuple[str, int]


class Dialed(NamedTuple):
    """A connection to a master, and the address that answered; with TLS the relay's plain end of it."""

    sock: socket.socket
    peer: Address
    relay: TlsRelay | None = None


class NotConnected(Exception):
    """Raised when a connection cannot be had."""

    def __init__(self, reason: CloseReason, detail: str) -> None:
        super().__init__(f"{reason.name}: {detail}")
        self.reason, self.detail = reason, detail


class Dial:
    """One attempt to connect at a time; `how` is TLS's part, if there is TLS."""

    def __init__(self, own_port: Cursor, how: RenewedContext | None = None) -> None:
        self._own_port, self._tls = own_port, how
        self._socket: socket.socket | None = None
        self._name = ""
        self._until_ms = 0

    @property
    def is_begun(self) -> bool:
        """Whether there is an attempt that is not decided."""
        return self._socket is not None

    @property
    def awaited(self) -> list[socket.socket]:
        """The socket that becomes writable when the attempt is decided; none without an attempt."""
        return [] if self._socket is None else [self._socket]

    def begin(self, master: Address, attempt: int, now_ms: int) -> None:
        """Connect to one address of the master: its name is looked up each time, its addresses are tried in turn.

        Raises NotConnected.
        """
        self._until_ms, self._name = now_ms + CONNECT_TIMEOUT_MS, master[0]
        try:
            places = addresses.resolve(*master)
            family, address = places[attempt % len(places)]
            self._socket = socket.socket(family, socket.SOCK_STREAM)
            self._socket.setblocking(False)
            self._socket.connect(address)
        except BlockingIOError:
            return
        except OSError as error:
            self.close()
            raise NotConnected(why_not_connected(error), f"{addresses.host_and_port(*master)}: {error}") from error

    def turn(self, now_ms: int) -> Dialed | None:
        """Return the connection once it stands, None before. Raises NotConnected."""
        assert self._socket is not None
        try:
            if not descriptors.await_ready((), [self._socket], 0):
                if now_ms < self._until_ms:
                    return None
                raise NotConnected(CloseReason.CONNECT_TIMEOUT, f"no answer within {CONNECT_TIMEOUT_MS} ms")
            error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise NotConnected(why_not_connected(OSError(error, "")), errno.errorcode.get(error, str(error)))
            dialed = self._finished(self._socket)
        except NotConnected:
            self.close()
            raise
        self._socket = None
        return dialed

    def _finished(self, sock: socket.socket) -> Dialed:
        try:
            host, port = sock.getpeername()[:2]
            own_host, own_port = sock.getsockname()[:2]
            if (own_host, own_port) == (host, port):  # TCP connects a port to itself when nobody listens on it
                refused = f"{addresses.host_and_port(host, port)} is this slave's own HA port"
                raise ConnectionRefusedError(errno.ECONNREFUSED, refused)
            if own_host == host and port == self._own_port.read():
                raise NotConnected(CloseReason.OWN_ADDRESS, addresses.host_and_port(host, port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            relay = None if self._tls is None else tls_relay.of_connected(sock, self._tls, self._name)
            plain = sock if relay is None else relay.plain
            plain.setblocking(True)
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                plain.setsockopt(socket.SOL_SOCKET, option, TIMEVAL.pack(SOCKET_TIMEOUT_S, 0))
        except OSError as error:
            raise NotConnected(why_not_connected(error), str(error)) from error
        return Dialed(plain, (host, port), relay)

    def close(self) -> None:
        """Close the socket of an attempt that is not decided."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None


def why_not_connected(error: OSError) -> CloseReason:
    """The reason behind an error of a look-up or a connect."""
    if isinstance(error, socket.gaierror):
        return CloseReason.NO_ADDRESS
    return NOT_CONNECTED.get(error.errno or 0, CloseReason.CONNECT_FAILED)
