"""`make fuzz`: 10^5 mutated frames at a broker's ports and at a name server, then a crowd; for docs/fuzz.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.attack import attack_broker, attack_name_server
from tests.fuzz.crowd import MESSAGES, crowd

MIB = 1 << 20
GROWN_BYTES_MAX = 64 * MIB
CROWD_BYTES_MAX, AGAIN_BYTES_MAX = 64 * MIB, 8 * MIB
HEAD = """# Mutated frames: the ledger

Written by `make fuzz`. It takes captured requests of real RocketMQ processes (brokers, name servers, and clients of
both lines), and requests of every code that serves clients with random fields. It changes fields, lengths, bytes and
values within JSON bodies at random, or cuts the frame, and sends it to Slipstream's servers. Each server must answer
or close the connection, stay alive and stay small. It must not log a client's nonsense as a failure of its own (a
traceback in a broker's log).

| server | as | frames | connections | grown by | answers at the end | restarts | failures |
|---|---|---|---|---|---|---|---|
"""
CROWD_HEAD = """
## A crowd

This many connections at once at a broker's port: idle ones, frames that never end, readers that read one byte, and
consumers that ask for messages and read none. Meanwhile one client sends messages and reads them back. Then the crowd
leaves, and a second one of the same size follows.

| broker | connections | served meanwhile | grown by | by the second crowd | restarts |
|---|---|---|---|---|---|
"""


def main() -> int:
    """Attack each server in turn; 0 when all of them are well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=100_000, help="for each server and version")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--connections", type=int, default=4000)
    parser.add_argument("--ledger", type=Path)
    asked = parser.parse_args()
    lines, failed = [], False
    for name, attack in (("broker", attack_broker), ("name server", attack_name_server)):
        for compat in ("4.9", "5"):
            with tempfile.TemporaryDirectory(prefix="slipstream-fuzz-") as directory:
                found = attack(Path(directory), compat, asked.frames, asked.seed)
            answers, grown = "yes" if found.is_answering else "NO", found.grown_bytes / MIB
            lines.append(
                f"| {name} | {compat} | {found.frames} | {found.connections} | {grown:.1f} MiB | {answers}"
                f" | {found.restarts} | {len(found.failures)} |"
            )
            print(lines[-1], *found.failures, sep="\n", flush=True)
            failed |= not found.is_answering or found.restarts > 0 or found.grown_bytes > GROWN_BYTES_MAX
            failed |= bool(found.failures)
    crowded = []
    for compat in ("4.9", "5"):
        with tempfile.TemporaryDirectory(prefix="slipstream-fuzz-") as directory:
            came = crowd(Path(directory), asked.connections, compat=compat)
        grown, again = came.grown_bytes / MIB, came.grown_again_bytes / MIB
        crowded.append(
            f"| {compat} | {came.connections} | {came.served} of {MESSAGES + 10} | "
            f"{grown:.1f} MiB | {again:.1f} MiB | {came.restarts} |"
        )
        print(crowded[-1], flush=True)
        failed |= came.restarts > 0 or came.served < MESSAGES + 10 or came.grown_bytes > CROWD_BYTES_MAX
        failed |= came.grown_again_bytes > AGAIN_BYTES_MAX
    if asked.ledger is not None:
        asked.ledger.write_text(HEAD + "\n".join(lines) + "\n" + CROWD_HEAD + "\n".join(crowded) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
