"""Hosts as records hold them, and the message id that names where a message is stored.

Implements: MessageDecoder.createMessageId, ByteBuffer2ByteBuffer host fields (spec: store-formats, section 7)
Addresses are spelled as Java spells them: IPv6 in eight groups without leading zeros ("0:0:0:0:0:0:0:1").
"""

from __future__ import annotations

import ipaddress
import struct
from functools import lru_cache
from typing import NamedTuple

from store.errors import InvalidMessage

_PORT = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_V4_IN_V6 = bytes(10) + b"\xff\xff"
V4_BYTES, V6_BYTES = 4, 16
HOSTS_CACHED = 4096
MESSAGE_ID_DIGITS = tuple(2 * (address + 4 + 8) for address in (V4_BYTES, V6_BYTES))


class Host(NamedTuple):
    """An address and a port."""

    ip: str
    port: int


@lru_cache(maxsize=HOSTS_CACHED)
def unpack_host(raw: bytes) -> Host:
    """The host of a record's 8 or 20 bytes. Java makes an IPv4 address of an IPv6 address that holds one."""
    address, (port,) = raw[:-4], _PORT.unpack_from(raw, len(raw) - 4)
    if len(address) == V6_BYTES and address.startswith(_V4_IN_V6):
        address = address[-V4_BYTES:]
    if len(address) == V4_BYTES:
        return Host(".".join(map(str, address)), port)
    return Host(":".join(f"{group:x}" for group in struct.unpack(">8H", address)), port)


@lru_cache(maxsize=HOSTS_CACHED)
def pack_host(host: Host) -> bytes:
    """A host's bytes in a record: 8 for IPv4, 20 for IPv6. Raises InvalidMessage."""
    try:
        return ipaddress.ip_address(host.ip).packed + _PORT.pack(host.port)
    except (ValueError, struct.error) as error:
        raise InvalidMessage("host", f"{host.ip}|{host.port}: {error}") from error


def offset_message_id(store_host: Host, physical_offset: int, is_v6: bool | None = None) -> str:
    """RocketMQ's offsetMsgId: address, port and offset in upper-case hexadecimal.

    `is_v6` is the record's flag: with it, an IPv4 address inside an IPv6 one leaves the room of an IPv6 id, zeroed.
    """
    raw = pack_host(store_host) + _OFFSET.pack(physical_offset)
    if is_v6 and len(raw) == V4_BYTES + 4 + 8:
        raw += bytes(V6_BYTES - V4_BYTES)
    return raw.hex().upper()


def parse_message_id(text: str) -> tuple[Host, int]:
    """Return the host and log offset that an offsetMsgId names. Raises InvalidMessage for an invalid id.

    A client's unique id has the same length and form: whether a record lies there, stored by that host, tells.
    """
    try:
        raw = bytes.fromhex(text) if len(text) in MESSAGE_ID_DIGITS else b""
    except ValueError:
        raw = b""
    if not raw:
        raise InvalidMessage("message id", f"{text!r} is not 32 (IPv4) or 56 (IPv6) hexadecimal digits")
    (offset,) = _OFFSET.unpack_from(raw, len(raw) - _OFFSET.size)
    return unpack_host(raw[: -_OFFSET.size]), offset
