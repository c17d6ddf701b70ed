"""`make bench`: every measurement of this folder, or those named, in one run.

    python -m tools.dev.bench [GROUPS] [--peers FOLDER] [--rocketmq FOLDER] [--kafka FOLDER] [--json FILE]
        [--ledger FILE]

Without the peers' folders only our own figures are printed: there is nothing to compare them with.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console

from ipc.module_names import named
from tools.common.progress import working
from tools.dev.bench import ledger
from tools.dev.bench.bed.figures import Figure, Ratio, json_lines, show
from tools.dev.bench.bed.front_load import NoCompiler
from tools.dev.bench.bed.peers import Peers


class Asked(NamedTuple):
    """The options that a measurement may need."""

    scratch: Path
    peers: Peers
    rocketmq: Path | None
    kafka: Path | None
    repeat: int
    console: Console


class Work(NamedTuple):
    """A measurement: its module in `tools.dev.bench.works`, imported once it is asked for, and how it is called."""

    module: str
    measure: Callable[[Any, Asked], tuple[list[Figure], list[Ratio]]]
    help: str


def _repeated(module: Any, asked: Asked) -> tuple[list[Figure], list[Ratio]]:
    return module.measure(asked.scratch, asked.repeat)  # type: ignore[no-any-return]


def _compared(module: Any, asked: Asked) -> tuple[list[Figure], list[Ratio]]:
    return module.measure(asked.scratch, asked.peers, asked.rocketmq, asked.repeat)  # type: ignore[no-any-return]


def _spark(module: Any, asked: Asked) -> tuple[list[Figure], list[Ratio]]:
    jars = (None, None) if asked.kafka is None else (asked.kafka / "broker", asked.kafka / "jars")
    return module.run(SPARK_MIB, asked.repeat, asked.console, asked.scratch, *jars)  # type: ignore[no-any-return]


SPARK_MIB, STREAM_SECONDS, STREAM_MIB = 512, 30, 768
WORKS = {
    "append": Work("append", lambda module, of: module.measure(of.scratch, of.peers, of.repeat), "puts a second"),
    "latency": Work("latency", _compared, "of one put, beside RocketMQ's"),
    "front-sends": Work("front_sends", _compared, "clients' sends, beside RocketMQ's"),
    "front-consume": Work("front_consume", _compared, "clients' pulls, beside RocketMQ's"),
    "front-idle": Work("front_idle", _compared, "clients that wait, beside RocketMQ's"),
    "delays": Work("delays", _compared, "delayed messages that are due, beside RocketMQ's"),
    "slaves": Work("slaves", _repeated, "puts that wait for slaves"),
    "catch-up": Work("catch_up", _compared, "a slave that begins with nothing"),
    "wakeups": Work("wakeups", _repeated, "which processes wake for a message, and for none"),
    "idle": Work("idle", lambda module, of: module.measure(of.scratch), "CPU of a broker without work"),
    "admin": Work("admin_start", _repeated, "the start of commands"),
    "dispatch": Work("dispatch", _repeated, "queues built from the log"),
    "index-put": Work("index_put", _repeated, "keys into the index"),
    "sync-flush": Work("sync_flush", _repeated, "puts that wait for the disk"),
    "roll": Work("roll", _repeated, "puts at the end of a segment"),
    "verify": Work("verify", _repeated, "every record, queue and index checked"),
    "planning": Work("reads.planning", _repeated, "plans of Spark reads of very many segments and queues"),
    "scale-costs": Work("reads.scale_costs", _repeated, "what docs/scale.md multiplies"),
    "opening": Work("opening", _repeated, "the start on a store that is there"),
    "scan": Work("reads.scan", _repeated, "record batches without Spark"),
    "flight": Work("reads.flight", _repeated, "a store through Arrow Flight, beside reads in place"),
    "shared-pages": Work("reads.shared_pages", _repeated, "memory of two executors on one host"),
    "side-files": Work("reads.side_files", _repeated, "columns beside sealed segments, and what they cost appends"),
    "spark": Work("reads.spark", _spark, "batch reads, beside Kafka's"),
    "side-reads": Work(
        "reads.side_reads",
        lambda module, of: module.run(SPARK_MIB, of.repeat, of.console, of.scratch),
        "reads by side files, beside native Parquet",
    ),
    "spark-stream": Work(
        "reads.spark_stream",
        lambda module, of: module.run(STREAM_SECONDS, STREAM_MIB, of.repeat, of.console, of.scratch),
        "a stream that follows a broker",
    ),
}
GROUPS_HELP = "\b\n" + "\n".join(f"{name:14}{work.help}" for name, work in WORKS.items())
FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command(epilog=GROUPS_HELP)
@click.argument("groups", nargs=-1, type=click.Choice(list(WORKS)))
@click.option("--peers", type=FOLDER, help="The folder of the peers' program, peers.py.")
@click.option("--rocketmq", type=FOLDER, help="The folder of the program that measures RocketMQ, measure.py.")
@click.option("--kafka", type=FOLDER, help="A folder: Kafka's jars in broker/, Spark's connector in jars/.")
@click.option("--directory", type=FOLDER, help="Where stores go (the system's temporary directory).")
@click.option("--repeat", default=3, show_default=True, help="Runs of each work; the median counts.")
@click.option("--ledger", "ledger_file", type=click.Path(path_type=Path), help="Keep each work's newest figures here.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Add a JSON object a line to this file.")
def main(
    groups: tuple[str, ...],
    peers: Path | None,
    rocketmq: Path | None,
    kafka: Path | None,
    directory: Path | None,
    repeat: int,
    ledger_file: Path | None,
    json_file: Path | None,
) -> None:
    """Measure GROUPS (all of them when none is named)."""
    console = Console()
    scratch = Path(tempfile.mkdtemp(prefix="slipstream-bench-", dir=directory))
    figures: list[Figure] = []
    ratios: list[Ratio] = []
    where = ledger.machine(scratch)
    try:
        chosen = groups or tuple(WORKS)
        for number, group in enumerate(chosen, 1):
            console.print(f"{group} ...")
            work = WORKS[group]
            # Spark and its JVM are loaded only for theirs
            module = import_module(named(f"tools.dev.bench.works.{work.module}"))
            before = ledger.load()
            try:
                with working(f"{group}, {number} of {len(chosen)}"):
                    measured = work.measure(module, Asked(scratch, Peers(peers), rocketmq, kafka, repeat, console))
            except NoCompiler as missing:
                click.echo(f"{group}: {missing}", err=True)
                continue
            figures += measured[0]
            ratios += measured[1]
            if ledger_file is not None:
                ledger.keep(ledger_file, [ledger.entry(group, *measured, where, (before, ledger.load()), repeat)])
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    show(figures, ratios, console)
    for line in json_lines(figures, ratios):
        click.echo(line)
        if json_file is not None:
            with json_file.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
