"""Addresses as counters hold them: an IPv4 address and a port in one 64-bit word, an IPv6 address in two more.

    word   IPv4 address u32 << 16 | port u16, or IPV6 | port u16          0, and anything below: no address
    high, low   the IPv6 address; 0 with IPv4

An IPv4 address in IPv6's clothes (::ffff:10.0.0.1) is an IPv4 address. `engine.shared_memory.address_cursors` shares
the words.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple

PORT_BITS = 16
PORT_MASK = (1 << PORT_BITS) - 1
IPV6 = 1 << 62
HALF_BITS = 64
NETWORK_BITS = 64
HALF_MASK = (1 << HALF_BITS) - 1
NOWHERE = "-"


class Packed(NamedTuple):
    """An address in three 64-bit words; an IPv4 address needs only the first."""

    word: int
    high: int = 0
    low: int = 0


def _signed(half: int) -> int:
    return half - (1 << HALF_BITS) if half >> (HALF_BITS - 1) else half


def pack(host: str, port: int) -> Packed:
    """The words of a numeric address (a scope behind % is dropped) and its port. Raises ValueError."""
    if not 0 <= port <= PORT_MASK:
        raise ValueError(f"{port} is not a port")
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if isinstance(address, ipaddress.IPv4Address):
        return Packed(int(address) << PORT_BITS | port)
    return Packed(IPV6 | port, _signed(int(address) >> HALF_BITS), _signed(int(address) & HALF_MASK))


def unpack(word: int, high: int = 0, low: int = 0) -> tuple[str, int] | None:
    """Host and port; None for no address."""
    if word <= 0:
        return None
    if word & IPV6:
        address = (high & HALF_MASK) << HALF_BITS | low & HALF_MASK
        return str(ipaddress.IPv6Address(address)), word & PORT_MASK
    return str(ipaddress.IPv4Address(word >> PORT_BITS)), word & PORT_MASK


def host_and_port(host: str, port: int | str) -> str:
    """ "host:port", an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split(text: str) -> tuple[str, str]:
    """Host without brackets, and what stands behind the last colon: RocketMQ writes IPv6 addresses without any."""
    host, _colon, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), port


def text(word: int, high: int = 0, low: int = 0) -> str:
    """ "host:port"; "-" for no address."""
    place = unpack(word, high, low)
    return NOWHERE if place is None else host_and_port(*place)


def network_of(host: str) -> str:
    """Return what is counted as one peer: an IPv4 address, or an IPv6 network, whose hosts choose addresses freely."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, NETWORK_BITS), strict=False))


def same_host(one: Packed, other: Packed) -> bool:
    """Whether two addresses differ in their ports at most; no address is nobody's."""
    return one.word > 0 and one.word | PORT_MASK == other.word | PORT_MASK and one[1:] == other[1:]


def resolve(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    """Return every address of a host, in the system's order; numeric ones cost no look-up. Raises OSError."""
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, (str(address[0]), int(address[1]))) for family, _kind, _protocol, _name, address in answers]
