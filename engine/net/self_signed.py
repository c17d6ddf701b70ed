"""A self-signed certificate for tests: made when a server starts in TLS's test mode, kept in memory alone.

Implements: netty's SelfSignedCertificate, which RocketMQ shows with tls.test.mode.enable; X.509 (RFC 5280), ECDSA over
P-256 with SHA-256 (FIPS 186-4), in so much of DER as one certificate needs
Nobody verifies such a certificate; its key is used by nobody else. The arithmetic takes no care to hide the key from
who measures times, and needs none: who can connect is served.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ipc.clock import wall_ms

P = 2**256 - 2**224 + 2**192 + 2**96 - 1
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
BYTES = 32
SEQUENCE, SET, INTEGER, BIT_STRING, OCTET_STRING, OID, UTF8, TIME = 0x30, 0x31, 2, 3, 4, 6, 12, 0x18
EC_KEY, CURVE, ECDSA_SHA256, COMMON_NAME = (
    bytes.fromhex(text) for text in ("2a8648ce3d0201", "2a8648ce3d030107", "2a8648ce3d040302", "550403")
)
VERSION_3, SERIAL_BITS, LIFE = 2, 127, timedelta(days=365)
Point = tuple[int, int] | None


class Pem(NamedTuple):
    """A certificate and its private key."""

    certificate: str
    key: str


def self_signed(name: str) -> Pem:
    """A new certificate for that common name, valid for a year from yesterday, and its key."""
    secret = secrets.randbelow(N - 1) + 1
    x, y = _times(secret, G) or G
    point = b"\x04" + x.to_bytes(BYTES) + y.to_bytes(BYTES)
    signed_with = _der(SEQUENCE, _der(OID, ECDSA_SHA256))
    named = _der(SEQUENCE, _der(SET, _der(SEQUENCE, _der(OID, COMMON_NAME), _der(UTF8, name.encode()))))
    now = datetime.fromtimestamp(wall_ms() / 1000, UTC)
    begins, ends = (_der(TIME, f"{at:%Y%m%d%H%M%SZ}".encode()) for at in (now - timedelta(days=1), now + LIFE))
    key = _der(SEQUENCE, _der(SEQUENCE, _der(OID, EC_KEY), _der(OID, CURVE)), _der(BIT_STRING, b"\0" + point))
    said = _der(
        SEQUENCE,
        _der(0xA0, _number(VERSION_3)),
        _number(secrets.randbits(SERIAL_BITS) | 1),
        signed_with,
        named,
        _der(SEQUENCE, begins, ends),
        named,
        key,
    )
    certificate = _der(SEQUENCE, said, signed_with, _der(BIT_STRING, b"\0" + _signature(secret, said)))
    private = _der(
        SEQUENCE,
        _number(1),
        _der(OCTET_STRING, secret.to_bytes(BYTES)),
        _der(0xA0, _der(OID, CURVE)),
        _der(0xA1, _der(BIT_STRING, b"\0" + point)),
    )
    return Pem(_pem("CERTIFICATE", certificate), _pem("EC PRIVATE KEY", private))


def _signature(secret: int, data: bytes) -> bytes:
    digest = int.from_bytes(hashlib.sha256(data).digest())
    while True:
        nonce = secrets.randbelow(N - 1) + 1
        x, _y = _times(nonce, G) or G
        r = x % N
        s = pow(nonce, -1, N) * (digest + r * secret) % N
        if r and s:
            return _der(SEQUENCE, _number(r), _number(s))


def _times(factor: int, point: Point) -> Point:
    total: Point = None
    while factor:
        if factor & 1:
            total = _sum(total, point)
        point, factor = _sum(point, point), factor >> 1
    return total


def _sum(one: Point, other: Point) -> Point:
    if one is None or other is None:
        return one or other
    (x1, y1), (x2, y2) = one, other
    if x1 == x2 and (y1 + y2) % P == 0:
        return None
    slope = (3 * x1 * x1 - 3) * pow(2 * y1, -1, P) if one == other else (y2 - y1) * pow(x2 - x1, -1, P)
    x = (slope * slope - x1 - x2) % P
    return x, (slope * (x1 - x) - y1) % P


def _number(value: int) -> bytes:
    return _der(INTEGER, value.to_bytes(value.bit_length() // 8 + 1))


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + content


def _pem(what: str, content: bytes) -> str:
    text = base64.b64encode(content).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {what}-----\n{lines}\n-----END {what}-----\n"
