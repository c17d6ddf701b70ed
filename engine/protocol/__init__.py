"""Protocols without I/O: bytes and time in, bytes and actions out. No socket, file, clock or process; see PROTOCOL.md."""
