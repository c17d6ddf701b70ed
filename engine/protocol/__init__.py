"""Protocols without I/O: bytes and time in, bytes and actions out, as PROTOCOL.md tells; no socket, file or clock."""
