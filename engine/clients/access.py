"""Signs requests, so that a broker with access control knows the client by its access key.

Implements: AclClientRPCHook, AclUtils.combineRequestContent, AclSigner (HmacSHA1), SessionCredentials
RocketMQ 4.9 checks the signatures with `aclEnable=true`, 5.x with `authenticationEnabled=true`. A name server checks
none. The secret key is never sent, and the signature covers no time, so a request that was overheard can be repeated.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.clients.names import ClientError

ACCESS_KEY, SECURITY_TOKEN, SIGNATURE = "AccessKey", "SecurityToken", "Signature"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A client's access key, the secret that belongs to it, and a security token if the broker wants one.

    Raises ClientError if a key is empty. Its text shows neither the secret nor the token.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.access_key:
            raise ClientError("the access key is empty")
        if not self.secret_key:
            raise ClientError(f"the secret key of access key {self.access_key!r} is empty")


def signed(fields: Mapping[str, str] | None, body: bytes | memoryview, credentials: Credentials) -> dict[str, str]:
    """Return a request's fields with the access key and a signature of all fields' values and of the body."""
    named = {**(fields or {}), ACCESS_KEY: credentials.access_key}
    named.pop(SIGNATURE, None)
    if credentials.security_token is not None:
        named[SECURITY_TOKEN] = credentials.security_token
    values = "".join(named[name] for name in sorted(named)).encode("utf-8", "replace")
    digest = hmac.digest(credentials.secret_key.encode("utf-8", "replace"), values + bytes(body), "sha1")
    return {**named, SIGNATURE: base64.b64encode(digest).decode("ascii")}
