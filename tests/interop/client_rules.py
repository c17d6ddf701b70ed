"""Rules of RocketMQ's client that need no broker, asked of its own classes (java/ClientRules.java).

Run as a program, it records the shares that the unit tests of strategies read.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.harness.strategy_cases import RECORDED, Case, cases
from tests.interop.rocketmq import VERSIONS, RealClient


class NoNameServer(NamedTuple):
    """What a client is told where it asks no name server."""

    version: str
    address: str = "127.0.0.1:1"


class ClientRules(RealClient):
    """A JVM with RocketMQ's client classes of one version."""

    main_class, heap = "ClientRules", "96m"

    def __init__(self, home: Path, version: str) -> None:
        super().__init__(home, NoNameServer(version))

    def shares(self, case: Case) -> list[list[int]]:
        """Each member's queues by their indexes, as Java's strategy allocates them."""
        shares: list[list[int]] = self.ask("share", **case._asdict())[0]["shares"]
        return shares


def shares_of(version: str, home: Path) -> list[tuple[Case, list[list[int]]]]:
    """Every case, and what that version's strategies give in it."""
    with ClientRules(home, version) as java:
        return [(case, java.shares(case)) for case in cases()]


def main() -> None:
    """Record the shares, on which both versions must agree."""
    with tempfile.TemporaryDirectory() as home:
        first, *others = [shares_of(version, Path(home) / version) for version in VERSIONS]
    assert all(other == first for other in others)
    RECORDED.write_text("".join(f"{json.dumps([*case, shares])}\n" for case, shares in first))


if __name__ == "__main__":
    main()
