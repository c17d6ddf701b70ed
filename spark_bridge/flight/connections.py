"""The connections of a Flight server's port, which gRPC keeps to itself: listed, and hung up on, through the process.

gRPC's synchronous server waits for a client that takes nothing for as long as it lives, lets in any number of them, and
asks nobody who they are before they have called. So a look at our own descriptors, now and then, ends what must end:
`shutdown` of a socket is a hang-up, as the peer's own would be, and gRPC goes on from there.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import unquote

DESCRIPTORS = "/proc/self/fd"


class Peer(NamedTuple):
    """The other end of a connection."""

    host: str
    port: int


def peer_of(text: str) -> Peer:
    """From gRPC's words: `ipv4:127.0.0.1:4242`, `ipv6:[::1]:4242` (percent signs and all). Raises ValueError."""
    _family, _colon, rest = unquote(text).partition(":")
    host, _colon, port = rest.rpartition(":")
    return _plain(host.strip("[]"), int(port))


def _plain(host: str, port: int) -> Peer:
    """An IPv4 address in IPv6's clothes is an IPv4 address; a scope behind % is dropped."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return Peer(str(mapped or address), port)


def established(port: int) -> list[Peer]:
    """The other ends of this process's accepted connections at a port."""
    return [peer for peer, _connection in _connections(port)]


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
    """Each with a descriptor of its own, closed when the next one is asked for: a number may be another's by then."""
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
