"""The connections of a Flight server's port, which gRPC keeps to itself: listed, and hung up on, through the process.

gRPC's synchronous server waits for a client that takes nothing for as long as it lives, lets in any number of them, and
asks nobody who they are before they have called. So a look at our own descriptors, now and then, ends what must end:
`shutdown` of a socket is a hang-up, as the peer's own would be, and gRPC goes on from there.

gRPC reads a request whole, however long, before anybody here sees whose it is. So what has come over a connection since
a call on it was let in is looked at, too.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import unquote

DESCRIPTORS = "/proc/self/fd"
BYTES_RECEIVED = struct.Struct("=128xQ")  # of the system's struct tcp_info, which has one layout everywhere
UNASKED_MAX = 32 << 20  # bytes on one connection: many of the largest requests at once
UNASKED_TOGETHER_MAX = 256 << 20  # on all
UNASKED_LEAST = 2 << 20  # what none is hung up on for: a request and a handshake


class Peer(NamedTuple):
    """The other end of a connection."""

    host: str
    port: int


def peer_of(text: str) -> Peer:
    """Parse gRPC's words: `ipv4:127.0.0.1:4242`, `ipv6:[::1]:4242` (percent signs and all). Raises ValueError."""
    _family, _colon, rest = unquote(text).partition(":")
    host, _colon, port = rest.rpartition(":")
    return _plain(host.strip("[]"), int(port))


def _plain(host: str, port: int) -> Peer:
    """An IPv4 address in IPv6's clothes is an IPv4 address; a scope behind % is dropped."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return Peer(str(mapped or address), port)


class Unasked:
    """The bytes that have come over each connection since a call on it was let in."""

    def __init__(self) -> None:
        self._called: set[Peer] = set()
        self._at_call: dict[Peer, int] = {}

    def let_in(self, peer: Peer) -> None:
        """A call of this one's was."""
        self._called.add(peer)

    def too_much(self, received: Mapping[Peer, int], streaming: Collection[Peer]) -> set[Peer]:
        """Return the connections to close, from the bytes that each has sent.

        A stream's client sends what is asked for: rows, or word that it has room, which adds up.
        """
        called, self._called = self._called, set()
        asked = called.union(streaming)
        self._at_call = {peer: size if peer in asked else self._at_call.get(peer, 0) for peer, size in received.items()}
        unasked = {peer: size - self._at_call[peer] for peer, size in received.items()}
        most = UNASKED_MAX if sum(unasked.values()) <= UNASKED_TOGETHER_MAX else UNASKED_LEAST
        return {peer for peer, size in unasked.items() if size > most}


def established(port: int) -> list[Peer]:
    """The other ends of this process's accepted connections at a port."""
    return [peer for peer, _connection in _connections(port)]


def received(port: int) -> dict[Peer, int]:
    """Return how many bytes have come over each of them; none where the kernel does not count."""
    return {peer: _received(connection) for peer, connection in _connections(port)}


def _received(connection: socket.socket) -> int:
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BYTES_RECEIVED.size)
    except OSError:  # it ended by itself
        return 0
    return int(BYTES_RECEIVED.unpack(info)[0]) if len(info) == BYTES_RECEIVED.size else 0


def hang_up(port: int, on: Callable[[Peer], bool]) -> int:
    """End those of the connections at a port that are to end; how many."""
    ended = 0
    for peer, connection in _connections(port):
        if on(peer):
            with suppress(OSError):  # it ended by itself
                connection.shutdown(socket.SHUT_RDWR)
                ended += 1
    return ended


def _connections(port: int) -> Iterator[tuple[Peer, socket.socket]]:
    """Yield each connection with a descriptor of its own.

    It is closed when the next one is asked for: a number may be another's by then.
    """
    for name in os.listdir(DESCRIPTORS):
        try:
            if not os.readlink(f"{DESCRIPTORS}/{name}").startswith("socket:"):
                continue
            connection = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # closed meanwhile
            continue
        with connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            try:
                at, peer = connection.getsockname(), connection.getpeername()
            except OSError:  # a listening socket, or one whose peer has gone
                continue
            if at[1] == port:
                yield _plain(peer[0], peer[1]), connection
