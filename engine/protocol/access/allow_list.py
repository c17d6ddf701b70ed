"""Lists of addresses and networks (CIDR) that may do something; this host itself always may.

An IPv4 address in IPv6's clothes (::ffff:10.0.0.1) is an IPv4 address, in a list and at the door; a scope behind % is
dropped. `0.0.0.0/0` is every IPv4 address and `::/0` every IPv6 address: to let in both, write both.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
NETWORKS_MAX = 1024
MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")


class AllowList(NamedTuple):
    """Networks, in the order in which they were written."""

    networks: tuple[Network, ...]

    def has(self, address: Ip) -> bool:
        """Whether one of them holds this address, which `plain` made."""
        return any(address in network for network in self.networks)

    def __str__(self) -> str:
        return ";".join(str(network) for network in self.networks)


def parsed(text: str) -> AllowList:
    """The list that a setting says. Raises ValueError, whose text says which part is wrong."""
    parts = [part.strip() for part in re.split("[,;]", text) if part.strip()]
    if not parts:
        raise ValueError("the list is empty: leave the line out, or write 127.0.0.1 for this host only")
    if len(parts) > NETWORKS_MAX:
        raise ValueError(f"{len(parts)} networks, {NETWORKS_MAX} at most")
    return AllowList(tuple(_network(part) for part in parts))


def _network(part: str) -> Network:
    try:
        interface = ipaddress.ip_interface(part)
    except ValueError:
        raise ValueError(f"{part} is neither an address nor a network") from None
    network: Network = interface.network
    if "%" in part:
        raise ValueError(f"{part} has a scope: addresses are compared without it")
    if interface.ip != network.network_address:
        raise ValueError(f"{part} has bits behind its prefix: write {network}, or {interface.ip} for that address only")
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(MAPPED):
        mapped = network.network_address.ipv4_mapped
        return ipaddress.IPv4Network((int(mapped or 0), network.prefixlen - MAPPED.prefixlen))
    return network


def plain(address: str) -> Ip:
    """Return an address in the form in which it is compared. Raises ValueError for an invalid one."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return mapped or ip


def is_this_host(peer: Ip, own: Ip) -> bool:
    """Whether a connection came from this host: from loopback, or from the very address that it came to."""
    return peer.is_loopback or peer == own


def may_enter(allowed: AllowList | None, peer: str, own: str) -> bool:
    """Whether a connection from `peer` to our address `own` is let in; without a list everybody is."""
    if allowed is None:
        return True
    address = plain(peer)
    return is_this_host(address, plain(own)) or allowed.has(address)
