"""Addresses of hosts as settings name them, and the one of this host that others reach."""

from __future__ import annotations

import ipaddress
import socket


def resolved(text: str) -> str:
    """An address, or that of a host's name. Raises ValueError."""
    if not text:
        raise ValueError(text)
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        try:
            return str(socket.getaddrinfo(text, None, type=socket.SOCK_STREAM)[0][4][0])
        except OSError as failed:
            raise ValueError(f"{text}: {failed.strerror}") from failed


def of_this_host() -> str:
    """The address of this host that others reach; connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
