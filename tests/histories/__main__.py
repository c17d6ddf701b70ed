"""`make histories` and `make python-histories`: many histories with kills at seeded moments, checked; for docs."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.histories.checker import History, faults, said_again, together_after_deaths
from tests.histories.run import PAUSES, TARGETS, Play
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

"""
PYTHON_HEAD = """# Histories of Python's clients

Written by `make python-histories`. They are the [histories of Java's clients](histories.md) with the same checks, but
with `slipstream.Consumer` and `RemoteProducer`, each in its own process, in groups with and without Java's members.
"members" lists the consumers, then the producer: `java`, `wire` (Python, by the name server) or `local` (Python, which
reads the broker's store). Each group is consumed by another habit: `run` with threads, `run` in order, `for` and
`async for`. "paused" is SIGSTOP for 3 s.

"""
COLUMNS = (
    "broker",
    "members",
    "seed",
    "kills",
    "sent",
    "kept",
    "delivered",
    "duplicates",
    "written twice",
    "said again",
    "together",
    "faults",
)
CASTS = (  # consumers, producer; that of the seed 0, without kills, first
    (("java", "wire", "local"), "wire"),
    (("wire", "local"), "wire"),
    (("java", "wire"), "wire"),
    (("java", "local"), "wire"),
    (("local", "wire", "wire"), "java"),
)
JAVA = ("java", "java"), "java"


def line_of(kind: str, members: str, seed: int, history: History) -> str:
    """A row of the table."""
    kept = sum(one.is_acknowledged for one in history.sent.values())
    kills = ", ".join(history.kills) or "none"
    said = "; ".join(faults(history)).replace("|", "/")[:400] or "none"
    counts = f"{len(history.sent)} | {kept} | {len(history.got)} | {history.duplicates()} | {history.written_twice()}"
    counts += f" | {said_again(history.offsets)} | {together_after_deaths(history)}"
    return f"| {kind} | {members} | {seed} | {kills} | {counts} | {said} |"


def played(kind: str, seed: int, targets: tuple[str, ...], cast: tuple[tuple[str, ...], str]) -> History:
    """One of them, in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="slipstream-history-") as directory:
        return Play(Path(directory), kind, seed, targets, cast=cast[0], sender=cast[1]).run()


def main() -> int:
    """Play them; 1 where one has faults, 2 where RocketMQ is not here."""
    parser = argparse.ArgumentParser(prog="make histories")
    parser.add_argument("--ledger", type=Path)
    parser.add_argument("--seeds", type=int, default=6, help="for each value of compat; the first is without kills")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--real", type=int, default=0, metavar="KILLS", help="of real brokers, for reference")
    parser.add_argument("--python", action="store_true", help="with Slipstream's clients for Python among the members")
    asked = parser.parse_args()
    for version in REAL_OF.values():
        if reason := rocketmq.missing(version):
            print(f"make histories: {reason}", file=sys.stderr)
            return 2
    head = PYTHON_HEAD if asked.python else HEAD
    head += f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|\n"
    lines, failed = list[str](), False

    def note(kind: str, seed: int, targets: tuple[str, ...], cast: tuple[tuple[str, ...], str]) -> bool:
        history = played(kind, seed, targets, cast)
        lines.append(line_of(kind, f"{', '.join(cast[0])}; {cast[1]}", seed, history))
        print(lines[-1], flush=True)
        if asked.ledger is not None:
            asked.ledger.write_text(head + "\n".join(lines) + "\n")
        return bool(faults(history))

    for kind in REAL_OF:
        for seed in range(asked.seeds):
            dice = random.Random(seed)
            choices = (*TARGETS, *PAUSES) if asked.python else TARGETS
            targets = tuple(dice.choice(choices) for _ in range(asked.kills)) if seed else ()
            failed |= note(kind, seed, targets, CASTS[seed % len(CASTS)] if asked.python else JAVA)
    for version in REAL_OF.values() if asked.real else ():
        note(f"RocketMQ {version}", 0, ("broker",) * asked.real, JAVA)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
