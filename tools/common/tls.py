"""Whether a command's connections use TLS: with --tls-config, or with the file that the environment names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.net.tls import RenewedContext

TLS_CONFIG = "SLIPSTREAM_TLS_CONFIG"
TLS_HELP = f"Connect with TLS, as this tls.properties file of RocketMQ says. Default: ${TLS_CONFIG}, else no TLS."
SERVERS = "HOST:PORT[;HOST:PORT]"
SERVERS_HELP = "Name servers, separated by `;`. Default: $NAMESRV_ADDR."


def tls_of(path: str | None = None) -> RenewedContext | None:
    """Return how to connect; None for plaintext. Raises TlsUnusable, ConfigError."""
    file = tls_file(path)
    if file is None:
        return None
    from engine.clients import names  # seldom: it takes time to load

    return names.tls_of(file)


def tls_file(path: str | None) -> str | None:
    """Return the file that an argument or the environment names; None for plaintext."""
    return path or os.environ.get(TLS_CONFIG) or None
