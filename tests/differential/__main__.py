"""`make differential`: many operations of each version, with and without rarer settings; keeps a ledger of its figures.

    python -m tests.differential [--operations N] [--seed N] [--version V] [--ledger FILE]

Ends with 1 when anything differs; the stores are kept then, and named.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.differential.trial import Trial, run_trial
from tests.interop import rocketmq

HEAD = """# Differential test: the ledger

Written by `make differential`. One seeded list of operations runs on an unmodified RocketMQ broker and on a
Slipstream broker, with the same hosts and settings. Then commit log, consume queues, their extensions, batch queues
and index files are compared byte for byte. Fields that hold a moment of the clock are masked one by one, and what
follows from such a field is
compared with it.
"""


def main(arguments: list[str]) -> int:
    """Run all trials; 0 when every byte was equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=100_000, help="of each version, half of them with features")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--version", action="append", choices=rocketmq.VERSIONS)
    parser.add_argument("--ledger", type=Path)
    asked = parser.parse_args(arguments)
    trials = []
    for version in asked.version or rocketmq.VERSIONS:
        reason = rocketmq.missing(version)
        if reason is not None:
            print(f"differential: {reason}", file=sys.stderr)
            return 2
        for features in (False, True):
            trials.append(_trial(version, features=features, seed=asked.seed, count=asked.operations // 2))
    if asked.ledger is not None:
        asked.ledger.parent.mkdir(parents=True, exist_ok=True)
        asked.ledger.write_text(HEAD + "\n" + "\n".join(_entry(trial) for trial in trials))
    return 1 if any(trial.differences for trial in trials) else 0


def _trial(version: str, *, features: bool, seed: int, count: int) -> Trial:
    work = Path(tempfile.mkdtemp(prefix="slipstream-differential-"))
    trial = run_trial(work, version, features=features, seed=seed, count=count)
    print("\n".join(trial.lines), flush=True)
    if trial.differences:
        print(f"the stores are kept in {work}", file=sys.stderr)
    else:
        shutil.rmtree(work)
    return trial


def _entry(trial: Trial) -> str:
    found = trial.comparison
    settings = "with extensions, multi-dispatch, IPv6 broker"
    settings += ", property CRC, batch queues" if rocketmq.is_five(trial.version) else ""
    masked = sum(found.masked.bytes_of.values())
    rows = [
        ("operations", f"{trial.operations:,}, seed {trial.seed}"),
        ("records", f"{found.records:,}, and {found.blanks:,} blank ones"),
        ("entries of queues and index", f"{found.entries:,}"),
        ("bytes compared", f"{found.masked.compared:,}"),
        ("bytes masked", f"{masked:,}"),
        *((f"masked: {field}", f"{count:,}") for field, count in sorted(found.masked.bytes_of.items())),
        ("result", "equal" if not trial.differences else f"{len(trial.differences)} differences"),
    ]
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in Counter(trial.kinds).most_common())
    title = f"## RocketMQ {trial.version}, {settings if trial.features else 'settings as shipped'}"
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return f"{title}\n\n| | |\n|---|---|\n{table}\n\nOperations: {kinds}.\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
