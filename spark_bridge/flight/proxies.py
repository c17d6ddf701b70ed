"""Whether a Flight server is asked past the proxies that the environment names.

gRPC asks any proxy of `grpc_proxy`, `https_proxy` and `http_proxy`, for this host's own addresses, too.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

IN_PLAIN = "grpc+tcp", "grpc"
OF_THIS_HOST = "localhost"


def channel_options(location: str) -> list[tuple[str, int]]:
    """Return gRPC's options for a channel: a token in plain bytes, and a server on this host, bypass the proxy."""
    url = urlsplit(location)
    return [("grpc.enable_http_proxy", 0)] if url.scheme in IN_PLAIN or is_loopback(url.hostname or "") else []


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this host's own."""
    name = host.lower().rstrip(".")
    if name == OF_THIS_HOST or name.endswith(f".{OF_THIS_HOST}"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
