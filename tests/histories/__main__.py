"""`make histories`: many histories with kills at seeded moments, checked; for docs/histories.md."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.histories.checker import History, faults, said_again, together_after_deaths
from tests.histories.run import TARGETS, Play
from tests.interop import rocketmq
from tests.interop.clients import REAL_OF

HEAD = """# Histories

Written by `make histories`. RocketMQ's own producers and consumers run in their own JVMs at a Slipstream broker.
Meanwhile SIGKILL ends a process of the broker, the whole broker, a consumer or a producer at moments that a seed
chooses. The first run of each kind is without kills.

Then `tests/histories/checker.py` looks for these faults:

- an acknowledged message that no consumer saw;
- an order that is not the queue's;
- two members at one orderly queue at a time;
- a delayed message before its time;
- a transaction rolled back and seen, or seen twice;
- an offset of a group that fell while its broker lived.

Duplicates are counted; without kills there must be none. After a death of the whole broker its file of offsets is
some seconds old and its locks are lost, as with RocketMQ, while consumers that lived through it go on. So two things
are only counted then, and are faults otherwise: offsets that are lower than before ("said again"), and orderly queues
with two members ("together", for the 60 s of a lock).

The same at real brokers, of which only the whole can be killed (`--real`), is the reference: what they repeat.

| broker | seed | kills | sent | kept | delivered | duplicates | written twice | said again | together | faults |
|---|---|---|---|---|---|---|---|---|---|---|
"""


def line_of(kind: str, seed: int, history: History) -> str:
    """A row of the table."""
    kept = sum(one.is_acknowledged for one in history.sent.values())
    kills = ", ".join(history.kills) or "none"
    said = "; ".join(faults(history)).replace("|", "/")[:400] or "none"
    counts = f"{len(history.sent)} | {kept} | {len(history.got)} | {history.duplicates()} | {history.written_twice()}"
    counts += f" | {said_again(history.offsets)} | {together_after_deaths(history)}"
    return f"| {kind} | {seed} | {kills} | {counts} | {said} |"


def played(kind: str, seed: int, targets: tuple[str, ...]) -> History:
    """One of them, in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="slipstream-history-") as directory:
        return Play(Path(directory), kind, seed, targets).run()


def main() -> int:
    """Play them; 1 where one has faults, 2 where RocketMQ is not here."""
    parser = argparse.ArgumentParser(prog="make histories")
    parser.add_argument("--ledger", type=Path)
    parser.add_argument("--seeds", type=int, default=6, help="for each value of compat; the first is without kills")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--real", type=int, default=0, metavar="KILLS", help="of real brokers, for reference")
    asked = parser.parse_args()
    for version in REAL_OF.values():
        if reason := rocketmq.missing(version):
            print(f"make histories: {reason}", file=sys.stderr)
            return 2
    lines, failed = list[str](), False

    def note(kind: str, seed: int, history: History) -> None:
        lines.append(line_of(kind, seed, history))
        print(lines[-1], flush=True)
        if asked.ledger is not None:
            asked.ledger.write_text(HEAD + "\n".join(lines) + "\n")

    for kind in REAL_OF:
        for seed in range(asked.seeds):
            dice = random.Random(seed)
            targets = tuple(dice.choice(TARGETS) for _ in range(asked.kills)) if seed else ()
            history = played(kind, seed, targets)
            failed |= bool(faults(history))
            note(kind, seed, history)
    for version in REAL_OF.values() if asked.real else ():
        note(f"RocketMQ {version}", 0, played(version, 0, ("broker",) * asked.real))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
