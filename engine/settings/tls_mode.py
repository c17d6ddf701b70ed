"""How a port takes TLS and plaintext: RocketMQ's tls.server.mode, and our haTlsMode, which has no middle.

Implements: TlsMode
"""

from __future__ import annotations

from enum import StrEnum


class TlsMode(StrEnum):
    """Modes of TLS, in RocketMQ's words."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"
