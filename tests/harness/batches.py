"""The body of a batch, as a client sends it.

Implements: MessageDecoder.encodeMessages (spec: store-formats, section 5)
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

HEAD, LENGTH = Struct(">iIiii"), Struct(">h")  # total size, magic, body CRC, flag, body length; properties' length


def batch_body(items: Iterable[tuple[int, bytes | memoryview, bytes]]) -> bytes:
    """Return the bytes of messages given by flag, body and properties."""
    parts: list[bytes | memoryview] = []
    for flag, body, properties in items:
        size = HEAD.size + len(body) + LENGTH.size + len(properties)
        parts += [HEAD.pack(size, 0, 0, flag, len(body)), body, LENGTH.pack(len(properties)), properties]
    return b"".join(parts)
