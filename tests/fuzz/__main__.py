"""`make fuzz`: 10^5 mutated frames at a broker's two ports and at a name server, both versions; for docs/fuzz.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.attack import attack_broker, attack_name_server

MIB = 1 << 20
GROWN_BYTES_MAX = 64 * MIB
HEAD = """# Mutated frames: the ledger

Written by `make fuzz`. Captured requests of real RocketMQ processes, changed at random in fields, lengths, bytes and
bodies, are sent to our servers; each must answer or hang up, live, and stay small.

| server | as | frames | connections | grown by | answers at the end | restarts |
|---|---|---|---|---|---|---|
"""


def main() -> int:
    """Attack each server in turn; 0 when all of them are well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=100_000, help="for each server and version")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ledger", type=Path)
    asked = parser.parse_args()
    lines, failed = [], False
    for name, attack in (("broker", attack_broker), ("name server", attack_name_server)):
        for compat in ("4.9", "5"):
            with tempfile.TemporaryDirectory(prefix="slipstream-fuzz-") as directory:
                found = attack(Path(directory), compat, asked.frames, asked.seed)
            answers, grown = "yes" if found.is_answering else "NO", found.grown_bytes / MIB
            lines.append(f"| {name} | {compat} | {found.frames} | {found.connections} | {grown:.1f} MiB | {answers}"
                         f" | {found.restarts} |")  # fmt: skip
            print(lines[-1], flush=True)
            failed |= not found.is_answering or found.restarts > 0 or found.grown_bytes > GROWN_BYTES_MAX
    if asked.ledger is not None:
        asked.ledger.write_text(HEAD + "\n".join(lines) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
