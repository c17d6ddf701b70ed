"""HOST:PORT, as people, files and strangers write it."""

from __future__ import annotations

DIGITS_MAX, PORTS = 5, 1 << 16


def host_port(text: str | None, lowest: int = 1) -> tuple[str, int] | None:
    """The host, an IPv6 one without its brackets, and the port; None for what is neither, or a port below `lowest`."""
    host, _colon, port = (text or "").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdecimal() or len(port) > DIGITS_MAX:
        return None
    return (host, int(port)) if lowest <= int(port) < PORTS else None
