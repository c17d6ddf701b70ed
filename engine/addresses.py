"""Addresses as counters hold them: an IPv4 address and a port in one 64-bit word, so that nobody reads half of one.

    address u32 << 16 | port u16          0, and anything below: no address
"""

from __future__ import annotations

import ipaddress

PORT_BITS = 16
PORT_MASK = (1 << PORT_BITS) - 1
NOWHERE = "-"


def pack(host: str, port: int) -> int:
    """The word for a numeric address and its port. Raises ValueError for what does not fit into it."""
    if not 0 <= port <= PORT_MASK:
        raise ValueError(f"{port} is no port")
    return int(ipaddress.IPv4Address(host)) << PORT_BITS | port


def unpack(word: int) -> tuple[str, int] | None:
    """Host and port; None for no address."""
    if word <= 0:
        return None
    return str(ipaddress.IPv4Address(word >> PORT_BITS)), word & PORT_MASK


def text(word: int) -> str:
    """ "host:port"; "-" for no address."""
    found = unpack(word)
    return NOWHERE if found is None else f"{found[0]}:{found[1]}"
