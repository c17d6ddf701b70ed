"""Rules of RocketMQ's client that need no broker, asked of its own classes (java/ClientRules.java).

Run as a program, it records the shares and the signatures that the unit tests read.
"""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.harness.signed_cases import SIGNATURES, SIGNED_CASES, SignedCase
from tests.harness.strategy_cases import RECORDED, Case, cases
from tests.interop.rocketmq import VERSIONS, RealClient


class NoNameServer(NamedTuple):
    """Stands for a name server, which this client does not ask."""

    version: str
    address: str = "127.0.0.1:1"


class ClientRules(RealClient):
    """A JVM with RocketMQ's client classes of one version."""

    main_class, heap = "ClientRules", "96m"

    def __init__(self, home: Path, version: str) -> None:
        super().__init__(home, NoNameServer(version))
        self.offsets = home / "offsets"
        self.properties = [f"-Drocketmq.client.localOffsetStoreDir={self.offsets}"]

    def keep(self, offset: int, **place: str) -> None:
        """Write a group's offsets below `offsets`: queue 0 has `offset`, each following queue 10 more."""
        self.ask("keep", offset=offset, **place)

    def kept(self, **place: str) -> list[int]:
        """The offsets that a Java consumer reads there."""
        offsets: list[int] = self.ask("kept", **place)[0]["offset"]
        return offsets

    def shares(self, case: Case) -> list[list[int]]:
        """Each member's queues by their indexes, as Java's strategy allocates them."""
        shares: list[list[int]] = self.ask("share", **case._asdict())[0]["shares"]
        return shares

    def signature(self, case: SignedCase) -> str:
        """The signature that Java's client adds to a request."""
        fields = ",".join(f"{_encoded(name)}:{_encoded(value)}" for name, value in case.fields.items())
        texts = {"access_key": case.access_key, "secret_key": case.secret_key, "body": case.body}
        texts |= {} if case.security_token is None else {"security_token": case.security_token}
        answer = self.ask("sign", fields=fields, **{name: _encoded(text) for name, text in texts.items()})
        return str(answer[0]["signature"])


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def shares_of(version: str, home: Path) -> list[tuple[Case, list[list[int]]]]:
    """Every case, and what that version's strategies give in it."""
    with ClientRules(home, version) as java:
        return [(case, java.shares(case)) for case in cases()]


def signatures_of(version: str, home: Path) -> list[tuple[SignedCase, str]]:
    """Every request, and the signature that a client of that version adds to it."""
    with ClientRules(home, version) as java:
        return [(case, java.signature(case)) for case in SIGNED_CASES]


def main() -> None:
    """Record shares and signatures, on which both versions must agree."""
    with tempfile.TemporaryDirectory() as home:
        shares, other_shares = [shares_of(version, Path(home) / version) for version in VERSIONS]
        signatures, other_signatures = [signatures_of(version, Path(home) / version) for version in VERSIONS]
    assert (shares, signatures) == (other_shares, other_signatures)
    RECORDED.write_text("".join(f"{json.dumps([*case, given])}\n" for case, given in shares))
    SIGNATURES.write_text("".join(f"{json.dumps([*case, given])}\n" for case, given in signatures))


if __name__ == "__main__":
    main()
