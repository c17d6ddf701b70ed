"""Listening sockets: where a server can be reached, of which family, and the error for a port in use.

An address is bound as it is written: `0.0.0.0` is every IPv4 address, `::` every address of both families. Without an
address, a server whose own address is on loopback listens there alone, any other one everywhere.
"""

from __future__ import annotations

import errno
import ipaddress
import socket

from engine.shared_memory import addresses

EVERYWHERE_IPV4, EVERYWHERE = "0.0.0.0", "::"
BACKLOG = 1024


def bind_address(written: str | None, own: str) -> str:
    """Return where to listen: `written` if set, else `own` if it is on loopback, else every address."""
    if written is not None:
        return written
    if is_loopback(own):
        return own
    return EVERYWHERE if socket.has_dualstack_ipv6() else EVERYWHERE_IPV4


def is_loopback(address: str) -> bool:
    """Whether a numeric address is one that only this host reaches."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback


def listen(address: str, port: int, backlog: int = BACKLOG, *, is_shared: bool = False) -> socket.socket:
    """A listening socket that does not block. Raises OSError, whose text says what to change.

    Several processes of one user listen at a port that `is_shared` for all of them; the kernel deals connections out.
    """
    family, _kind, _protocol, _name, at = socket.getaddrinfo(
        address.encode(), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST
    )[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            both = address == EVERYWHERE or "." in address  # an IPv4 address in IPv6's clothes needs both families
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not both))
        listening.bind(at)
        listening.listen(backlog)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        advice = "give another port" if error.errno == errno.EADDRINUSE else "give an address of this host to listen on"
        raise OSError(error.errno, f"{addresses.host_and_port(address, port)}: {error.strerror}; {advice}") from error
    return listening
