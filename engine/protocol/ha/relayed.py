"""What two masters of one name say to each other where only a name server reaches both: signed, in their registrations.

A master says it as `filterServerList`, which name servers, RocketMQ's too, hand on with the route of its topics; of
clients only RocketMQ's of before 4.4 look at it. Each says a number that it has just made up, and signs its claim over
the other's number, so that nobody can say it again. Needs the secret of haSecretFile. No I/O.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import NamedTuple

from engine.protocol.ha.hello import NONCE_BYTES, is_signed, signature

PREFIX, PART_CHARACTERS, PARTS_MAX = "slipstream", 200, 20  # name servers keep texts of at most 255 bytes
WHO = b"relayed"


class Relayed(NamedTuple):
    """One master's words. `to` is the other one's number, b"" while it is not known; then nothing is proved."""

    nonce: bytes
    to: bytes
    claim: bytes
    signature: bytes


def signed(secret: bytes, nonce: bytes, to: bytes, claim: bytes) -> Relayed:
    """Our words to the one who made up that number."""
    return Relayed(nonce, to, claim, signature(secret, WHO, to, nonce + claim))


def is_proved(secret: bytes, nonce: bytes, said: Relayed) -> bool:
    """Whether who knows the secret said that, after we made up `nonce`."""
    return (
        len(nonce) == NONCE_BYTES
        and said.to == nonce
        and is_signed(secret, WHO, nonce, said.nonce + said.claim, said.signature)
    )


def texts_of(said: Relayed) -> tuple[str, ...]:
    """Return the words as the filter servers of a registration."""
    fields = [said.nonce.hex(), said.to.hex(), said.claim.decode(), said.signature.hex()]
    whole = base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()
    parts = (whole[at : at + PART_CHARACTERS] for at in range(0, len(whole), PART_CHARACTERS))
    return tuple(f"{PREFIX}:{number}:{part}" for number, part in enumerate(parts))


def relayed_of(texts: Iterable[object]) -> Relayed | None:
    """Return the words that a name server handed on; None unless they are whole and another Slipstream master's."""
    pieces = [one.split(":", 2) for one in texts if isinstance(one, str) and one.startswith(f"{PREFIX}:")]
    try:
        parts = {int(number): part for _prefix, number, part in pieces[:PARTS_MAX]}
        whole = "".join(parts[number] for number in range(len(parts)))
        nonce, to, claim, proof = json.loads(base64.urlsafe_b64decode(whole))
        said = Relayed(bytes.fromhex(nonce), bytes.fromhex(to), claim.encode(), bytes.fromhex(proof))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return said if len(said.nonce) == NONCE_BYTES else None
