"""`make simulate`: many seeds and all mutants, for docs/simulation.md; or one seed: `--seed 7`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.simulation.scenario import Failed, play, shortest

SHARE = 100
FAILURES_SHOWN = 5
HEAD = """# Replication in virtual time: the ledger

Written by `make simulate`. A master and up to three slaves run in one process, in virtual time, by the code that a
broker runs: the ring of a producer, the master's writer, listener, senders and group transfer, the slaves' receivers,
allocators and flushers, and recovery at each start. They have real segment files in memory, real counters and real
sockets. The simulation makes the clock, the network between the sockets, the messages, an actor for each process, and
what a disk loses of that which no fdatasync has brought to it.

Links delay, cut, go half-open and dribble. Processes are killed and stopped, a writer also before and after the word
that commits what it has copied. Hosts lose power, and any of the pages that were not flushed, or have neither a
descriptor nor a process to give. Disks are replaced. Strangers and a rogue master talk to both sides.

After every event these hold: each log is a part of one history; what a ring holds is appended once, in order; what is
published stays in the files; recovery keeps what was on the disk; acknowledgements stay within what was sent and never
fall; no put gets PUT_OK that the requested replicas do not hold; nothing acknowledged is lost. Once faults end, every
slave catches up.

"""


class Share(NamedTuple):
    """What some seeds came to."""

    seeds: int
    events: int
    virtual_ms: int
    acknowledged: int
    failures: list[str]


def play_share(first: int, count: int) -> Share:
    """Play these seeds."""
    events = virtual_ms = acknowledged = 0
    failures = []
    for seed in range(first, first + count):
        try:
            outcome = play(seed)
        except Failed as failed:
            failures.append(str(failed))
            continue
        events += outcome.events
        virtual_ms += outcome.virtual_ms
        acknowledged += outcome.acknowledged
    return Share(count, events, virtual_ms, acknowledged, failures)


def play_one(seed: int, faults: str | None) -> int:
    """Play one seed; one that fails again with as few faults as will do, unless it is said which happen."""
    try:
        print(play(seed, None if faults is None else [int(number) for number in faults.split(",")]))
    except Failed as failed:
        print(failed if faults is not None else shortest(failed))
        return 1
    return 0


def play_all(first: int, count: int) -> Share:
    """Play seeds on all processors."""
    starts = range(first, first + count, SHARE)
    counts = [min(SHARE, first + count - start) for start in starts]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return _sum(pool.map(play_share, starts, counts))


def _sum(shares: Iterable[Share]) -> Share:
    seeds = events = virtual_ms = acknowledged = 0
    failures: list[str] = []
    for share in shares:
        seeds, events, virtual_ms = seeds + share.seeds, events + share.events, virtual_ms + share.virtual_ms
        acknowledged, failures = acknowledged + share.acknowledged, failures + share.failures
    return Share(seeds, events, virtual_ms, acknowledged, failures)


def table_of(share: Share, seconds: float) -> str:
    """A line of the ledger."""
    days = share.virtual_ms / 86_400_000
    return (
        f"| {share.seeds:,} | {share.events:,} | {days:,.1f} | {share.acknowledged:,}"
        f" | {len(share.failures)} | {seconds:,.0f} |"
    )


def mutants() -> tuple[int, str]:
    """All mutants, in a process of their own: its exit code and what it says of each."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.mutants"], capture_output=True, text=True, check=False
    )
    rows = [line.split(": ", 2) for line in done.stdout.splitlines() if line.count(": ") >= 2]
    kinds = Counter(kind for kind, _breaks, _catch in rows)
    lines = [f"{len(rows)} mutants: " + ", ".join(f"{count} of {kind}" for kind, count in kinds.items()) + ".", ""]
    lines += ["| what is wrong | first caught by |", "|---|---|"]
    lines += [f"| {breaks} | {catch} |" for _kind, breaks, catch in rows]
    return done.returncode, "\n".join(lines)


def main() -> int:
    """0 when no promise is broken and every mutant is caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="this one alone, with what happened in it")
    parser.add_argument("--faults", help="with --seed: the numbers of those that happen, with commas; others do not")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--ledger", type=Path)
    asked = parser.parse_args()
    if asked.seed is not None:
        return play_one(asked.seed, asked.faults)
    began = time.monotonic()
    share = play_all(asked.first, asked.seeds)
    print(*share.failures[:FAILURES_SHOWN], sep="\n\n")
    line = table_of(share, time.monotonic() - began)
    print(line, flush=True)
    if asked.ledger is None:
        return int(bool(share.failures))
    missed, text = mutants()
    heading = "| seeds | events | days of virtual time | acknowledged | failed | seconds |"
    asked.ledger.write_text(f"{HEAD}{heading}\n{'|---' * 6}|\n{line}\n\n{text}\n")
    return int(bool(share.failures) or missed)


if __name__ == "__main__":
    sys.exit(main())
