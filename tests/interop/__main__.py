"""`make interop`: masters, slaves and name servers, the give and take, and clients, into docs/interop.md.

    python -m tests.interop docs/interop.md [matrix] [give-and-take] [clients] [--only TEXT] [--jobs N] [--results DIR]

Without a part named, all run. With --results, cells that are in that directory already are not run again; with
--jobs 0 none is, and the table says what is there.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.interop import clients_ledger, rocketmq
from tests.interop.give_and_take import HEAD as GIVE_AND_TAKE_HEAD
from tests.interop.give_and_take import rows as give_and_take_rows
from tests.interop.matrix import Cell, Result, cells

PARTS = ("matrix", "give-and-take", "clients")
TITLE = "# Interoperation with a real RocketMQ\n\nWritten by `make interop`.\n\n"
CELL_SECONDS = 900
MATRIX_HEAD = """## The matrix

Every row is a master, a slave and a name server, run by `tests/interop/matrix.py`. "ours 4.9" and "ours 5" are
Slipstream brokers with that `compat`; a version is RocketMQ's own broker. Both brokers find each other only through
the name server (no `haMasterAddress`); a real name server is of the real broker's line. A sync master waits for its
slave (5.3.3: `inSyncReplicas=2`).

The row runs under load, by RocketMQ's own producer if the master is RocketMQ's, else by Slipstream's, with segments
of 256 KiB. The slave is killed with SIGKILL and started again, then the master. While the slave is away, a topic is
created, one is deleted, and groups are created and changed. The row passes if in the end

- both commit logs hold the same bytes from 0 on, and `log verify` finds nothing in either store;
- every message that was answered is there once, with its body; one without an answer (the master was killed) once or
  not at all;
- with a sync master: what it had acknowledged when it was killed is in the slave's log at that moment;
- `topics.json`, `subscriptionGroup.json`, `consumerOffset.json`, `delayOffset.json` say the same on both;
- the name server lists both brokers.

"Stored, no slave" are answers FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE, given while the slave was away. If neither
broker is Slipstream's, the row is the reference, or a test of Slipstream's name server.

| master | slave | names | mode | acknowledged | stored, no slave | no answer | segments | MiB | seconds | result |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def run_cell(cell: Cell, results: Path) -> Result:
    """That cell in a process of its own, unless its result is there already."""
    out = results / f"{cell.name}.json"
    if not out.exists():
        command = [sys.executable, "-m", "tests.interop.matrix", cell.name, str(out)]
        with (results / f"{cell.name}.log").open("wb") as log:
            try:
                subprocess.run(command, check=False, stdout=log, stderr=log, timeout=CELL_SECONDS)
            except subprocess.TimeoutExpired:
                log.write(b"it did not end\n")
    if out.exists():
        result = Result(**json.loads(out.read_text()))
    else:
        result = Result(cell.name, error=(results / f"{cell.name}.log").read_text()[-300:] or "it did not end")
    print(row_of(cell, result), flush=True)
    return result


def row_of(cell: Cell, result: Result) -> str:
    """A line of the table."""
    said = "equal" if not result.error else "**FAILED**: " + result.error.replace("\n", " ").replace("|", "/")[:200]
    names = "ours" if cell.names == "ours" else cell.names_version
    numbers = f"{result.answered} | {result.not_replicated} | {result.unanswered} | {result.segments}"
    size = f"{result.log_bytes / 2**20:.1f} | {result.seconds:.0f}"
    return f"| {cell.master} | {cell.slave} | {names} | {cell.mode} | {numbers} | {size} | {said} |"


def matrix_section(only: str, jobs: int, results: Path) -> tuple[str, int]:
    """The whole table, and how many cells failed."""
    chosen = [cell for cell in cells() if only in cell.name]
    if jobs:
        with ThreadPoolExecutor(jobs) as pool:
            found = list(pool.map(lambda cell: run_cell(cell, results), chosen))
    else:
        chosen = [cell for cell in chosen if (results / f"{cell.name}.json").exists()]
        found = [run_cell(cell, results) for cell in chosen]
    failed = sum(bool(result.error) for result in found)
    ran = f"{len(found)} of {len(cells())} rows were run, {len(found) - failed} passed"
    rows = [row_of(cell, result) for cell, result in zip(chosen, found, strict=True)]
    return MATRIX_HEAD + "\n".join(rows) + f"\n\n{ran} (Python {platform.python_version()}).\n", failed


def replaced(document: str, section: str) -> str:
    """The document with that section instead of the one of the same heading."""
    heading = section.partition("\n")[0]
    parts = document.removeprefix(TITLE).split("\n## ")
    sections = [part if part.startswith("## ") else f"## {part}" for part in parts if part.strip()]
    kept = [part.rstrip() + "\n" for part in sections if part.partition("\n")[0] != heading]
    return TITLE + "\n".join(sorted([*kept, section], key=lambda part: not part.startswith("## The matrix")))


def main() -> int:
    """What was asked for; 1 where something failed, 2 where RocketMQ is not here."""
    parser = argparse.ArgumentParser(prog="make interop")
    parser.add_argument("out", type=Path)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--only", default="", help="cells whose name contains this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--results", type=Path)
    asked = parser.parse_args()
    for version in rocketmq.VERSIONS:
        reason = rocketmq.missing(version)
        if reason is not None:
            print(f"make interop: {reason}", file=sys.stderr)
            return 2
    results = asked.results or Path(tempfile.mkdtemp(prefix="interop-"))
    results.mkdir(parents=True, exist_ok=True)
    document, failed = asked.out.read_text() if asked.out.exists() else TITLE, 0
    if "matrix" in (asked.parts or PARTS):
        section, failed = matrix_section(asked.only, asked.jobs, results)
        document = replaced(document, section)
        asked.out.write_text(document)
    if "give-and-take" in (asked.parts or PARTS):
        section = GIVE_AND_TAKE_HEAD + "\n".join(give_and_take_rows(asked.rounds)) + "\n"
        document = replaced(document, section)
        asked.out.write_text(document)
    if "clients" in (asked.parts or PARTS):
        section, wrong = clients_ledger.section(clients_ledger.run_all(asked.jobs, results))
        asked.out.write_text(replaced(document, section))
        failed += wrong
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
