"""Kills a loader of a table of a lake, again and again, at steps of its commits; then counts the rows.

    python -m tests.spark_bridge.lake_kills iceberg DIRECTORY [--kills 20] [--seed 1]
    python -m tests.spark_bridge.lake_kills all --kills 100 --ledger docs/lake-kills.md

Each loader is a process of its own that runs `slipstream lake`, forked from this one, which has imported all and begun
no thread. Half of them kill themselves with SIGKILL before or behind a step of some commit; the others are killed from
outside when they have told of so many steps, wherever they are by then. Before each one messages are added to the log.
In the end every message has to be one row, and nothing else.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from spark_bridge.plan import inventory
from tests.harness.children import exit_code_of
from tests.spark_bridge.lakes import Lake
from tools.cli import run_command

STEPS = {  # module, class ("" for a function of the module), name
    "iceberg": (
        ("spark_bridge.lake.local_log", "LocalLog", "read"),
        ("spark_bridge.lake.iceberg", "IcebergTable", "commit"),
        ("pyiceberg.catalog.sql", "SqlCatalog", "create_table"),
        ("pyiceberg.io.pyarrow", "", "write_file"),
        ("pyiceberg.table", "Transaction", "append"),
        ("pyiceberg.manifest", "ManifestWriter", "__exit__"),
        ("pyiceberg.catalog.sql", "SqlCatalog", "_write_metadata"),
        ("pyiceberg.catalog.sql", "SqlCatalog", "commit_table"),
    ),
    "delta": (
        ("spark_bridge.lake.local_log", "LocalLog", "read"),
        ("spark_bridge.lake.delta", "DeltaTable", "commit"),
        ("spark_bridge.lake.delta", "DeltaTable", "reload"),
        ("spark_bridge.lake.delta", "DeltaTable", "_name_queues"),
        ("deltalake", "DeltaTable", "create"),
        ("deltalake", "", "write_deltalake"),
    ),
}  # fmt: skip
MODULES_MORE = {
    "iceberg": ("pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "sqlalchemy.dialects.sqlite.pysqlite"),
    "delta": ("deltalake.writer",),
}
ADDED, ROWS_MAX = 25, 6  # messages before each loader, and of a commit
OCCURRENCES_MAX, STEPS_MAX = 4, 24
FAILED = 70


@dataclass
class Kill:
    """One loader's end: which step of its commits, and whether it died of it or was through before."""

    step: str
    died: bool


@dataclass
class Outcome:
    """What was killed, what was sent, what is in the table."""

    kills: list[Kill] = field(default_factory=list)
    sent: int = 0
    rows: int = 0
    missing: int = 0
    repeated: int = 0


class Faults:
    """What a child does around the steps: dies at one of them, or tells of each."""

    def __init__(self, kind: str, deadly: tuple[int, bool, int] | None, tell: int | None) -> None:
        self._steps, self._deadly, self._tell = STEPS[kind], deadly, tell
        self._count: Counter[int] = Counter()

    def install(self) -> None:
        """In this process alone."""
        for number, (module, owner, name) in enumerate(self._steps):
            place: Any = import_module(module)
            place = getattr(place, owner) if owner else place
            around = self._around(number, getattr(place, name))
            is_static = isinstance(inspect.getattr_static(place, name), staticmethod)
            setattr(place, name, staticmethod(around) if is_static else around)

    def _around(self, number: int, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self._count[number] += 1
            self._at(number, behind=False)
            answer = real(*arguments, **options)
            self._at(number, behind=True)
            return answer

        return call

    def _at(self, number: int, *, behind: bool) -> None:
        if self._deadly == (number, behind, self._count[number]):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._tell is not None:
            os.write(self._tell, b".")


def command(lake: Lake) -> list[str]:
    """The loader, as it is typed."""
    arguments = ["lake", str(lake.store.root), "--to", lake.format, "--table", lake.name, "--once", "--json"]
    if lake.format == "iceberg":
        arguments += ["--catalog", lake.properties["uri"], "--warehouse", lake.properties["warehouse"]]
    return [*arguments, "--max-rows", str(ROWS_MAX)]


def child(action: Callable[[], int]) -> int:
    """A process that does it and ends with its code."""
    pid = os.fork()
    if not pid:
        try:
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
                os._exit(action())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(FAILED)
    return pid


def kill_once(lake: Lake, chance: random.Random, wants_step: bool) -> Kill:
    """One loader, and its end."""
    steps = STEPS[lake.format]
    if wants_step:
        deadly = chance.randrange(len(steps)), chance.random() < 0.5, 1 + chance.randrange(OCCURRENCES_MAX)

        def dying() -> int:
            Faults(lake.format, deadly, None).install()
            return run_command(command(lake))

        code = exit_code_of(child(dying))
        where = f"{'behind' if deadly[1] else 'before'} {steps[deadly[0]][2]}, the {deadly[2]}. time"
        return Kill(where, _died(code))
    told, wanted = os.pipe(), 1 + chance.randrange(STEPS_MAX)

    def telling() -> int:
        os.close(told[0])
        Faults(lake.format, None, told[1]).install()
        return run_command(command(lake))

    pid = child(telling)
    os.close(told[1])
    heard = 0
    while heard < wanted and (data := os.read(told[0], wanted - heard)):
        heard += len(data)
    os.kill(pid, signal.SIGKILL)
    os.close(told[0])
    return Kill(f"from outside, after {wanted} steps", _died(exit_code_of(pid)))


def _died(code: int) -> bool:
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f"a loader ended with {code}")
    return code != 0


def run(directory: Path, kind: str, kills: int, seed: int) -> Outcome:
    """Kill so many, then load the rest and count."""
    chance, outcome = random.Random(seed), Outcome()
    lake = Lake(directory, kind)
    for module in (*(step[0] for step in STEPS[kind]), *MODULES_MORE[kind], "tools.run.lake"):
        import_module(module)
    lake.fill(1)
    inventory.find_extent(str(lake.store.root))  # compiled code is loaded here, once
    while sum(kill.died for kill in outcome.kills) < kills:
        lake.fill(ADDED, ("orders", "returns")[len(outcome.kills) % 2])
        outcome.kills.append(kill_once(lake, chance, wants_step=len(outcome.kills) % 2 == 0))
    code = exit_code_of(child(lambda: run_command(command(lake))))
    if code:
        raise RuntimeError(f"the last loader ended with {code}")
    sent, rows = Counter(lake.sent), Counter(lake.places())
    outcome.sent, outcome.rows = sent.total(), rows.total()
    outcome.missing, outcome.repeated = (sent - rows).total(), (rows - sent).total()
    return outcome


def ledger(outcomes: dict[str, Outcome], seed: int) -> str:
    """The page of docs/."""
    lines = [
        "# Tables of a lake and kill -9",
        "",
        f"Written by `make lake-kills` (seed {seed}). Loaders (`slipstream lake --once`) of one table are killed at",
        "steps of their commits: before a step, after it, or from outside after some steps. Messages are added between",
        f"runs. Commits have at most {ROWS_MAX} rows.",
        "",
    ]
    for kind, outcome in outcomes.items():
        died = [kill for kill in outcome.kills if kill.died]
        lines += [
            f"## {kind}",
            "",
            f"{len(died)} kills, {outcome.sent:,} messages, {outcome.rows:,} rows:"
            f" **{outcome.missing} missing, {outcome.repeated} repeated.**",
            "",
            "| killed | times |",
            "|---|---|",
        ]
        places = Counter(kill.step.partition(",")[0].replace("_", r"\_") for kill in died)
        lines += [f"| {place} | {count} |" for place, count in sorted(places.items())]
        lines.append("")
    return "\n".join(lines)


@click.command()
@click.argument("kind", type=click.Choice([*STEPS, "all"]))
@click.argument("directory", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--kills", default=20, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=1, show_default=True)
@click.option("--ledger", "page", type=click.Path(path_type=Path))
def main(kind: str, directory: Path | None, kills: int, seed: int, page: Path | None) -> None:
    """Kill and count; what became of it as JSON, a line for each format."""
    outcomes = {}
    for one in STEPS if kind == "all" else (kind,):
        with tempfile.TemporaryDirectory(prefix="slipstream-lake-kills-") as own:
            outcomes[one] = run(directory or Path(own), one, kills, seed)
        print(json.dumps(asdict(outcomes[one])), flush=True)
    if page is not None:
        page.write_text(ledger(outcomes, seed))
    if any(outcome.missing or outcome.repeated for outcome in outcomes.values()):
        raise click.ClickException("rows were lost or repeated")


if __name__ == "__main__":
    main()
