"""`make bench`: every measurement of this folder, or those named, in one run.

    python -m tools.dev.bench [GROUPS] [--peers FOLDER] [--rocketmq FOLDER] [--kafka FOLDER] [--json FILE]
        [--ledger FILE]

Without the peers' folders only our own figures are printed: there is nothing to compare them with.
"""

from __future__ import annotations

import shutil
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console

from ipc.module_names import named
from tools.common.progress import working
from tools.dev.bench import ledger
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results, json_lines, show
from tools.dev.bench.bed.front_load import NoCompiler
from tools.dev.bench.bed.peers import Peers


class Work(NamedTuple):
    """A measurement: its module in `tools.dev.bench.works`, imported once it is asked for, and what it measures."""

    module: str
    help: str


WORKS = {
    "append": Work("append", "puts a second"),
    "latency": Work("latency", "of one put, beside RocketMQ's"),
    "front-sends": Work("front_sends", "clients' sends, beside RocketMQ's"),
    "front-consume": Work("front_consume", "clients' pulls, beside RocketMQ's"),
    "python-consume": Work("python_consume", "consumers for Python, beside Kafka's, Redis' and Java's"),
    "python-members": Work("python_members", "1 to 8 consumers of a group, beside Kafka's and Redis'"),
    "front-idle": Work("front_idle", "clients that wait, beside RocketMQ's"),
    "delays": Work("delays", "delayed messages that are due, beside RocketMQ's"),
    "slaves": Work("slaves", "puts that wait for slaves"),
    "catch-up": Work("catch_up", "a slave that begins with nothing"),
    "wakeups": Work("wakeups", "which processes wake for a message, and for none"),
    "idle": Work("idle", "CPU of a broker without work"),
    "admin": Work("admin_start", "the start of commands"),
    "dispatch": Work("dispatch", "queues built from the log"),
    "index-put": Work("index_put", "keys into the index"),
    "sync-flush": Work("sync_flush", "puts that wait for the disk"),
    "roll": Work("roll", "puts at the end of a segment"),
    "verify": Work("verify", "every record, queue and index checked"),
    "planning": Work("reads.planning", "plans of Spark reads of very many segments and queues"),
    "scale-costs": Work("reads.scale_costs", "what docs/scale.md multiplies"),
    "opening": Work("opening", "the start on a store that is there"),
    "scan": Work("reads.scan", "record batches without Spark"),
    "flight": Work("reads.flight", "a store through Arrow Flight, beside reads in place"),
    "shared-pages": Work("reads.shared_pages", "memory of two executors on one host"),
    "side-files": Work("reads.side_files", "columns beside sealed segments, and what they cost appends"),
    "spark": Work("reads.spark", "batch reads, beside Kafka's"),
    "side-reads": Work("reads.side_reads", "reads by side files, beside native Parquet"),
    "spark-stream": Work("reads.spark_stream", "a stream that follows a broker"),
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
@click.option("--mib", default=512, show_default=True, help="Size of the log that Spark reads, in steps of 256.")
@click.option("--ledger", "ledger_file", type=click.Path(path_type=Path), help="Keep each work's newest figures here.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Add a JSON object a line to this file.")
def main(
    groups: tuple[str, ...],
    directory: Path | None,
    ledger_file: Path | None,
    json_file: Path | None,
    peers: Path | None,
    **given: Any,
) -> None:
    """Measure GROUPS (all of them when none is named)."""
    console = Console()
    scratch = Path(tempfile.mkdtemp(prefix="slipstream-bench-", dir=directory))
    asked, every = Asked(scratch, console, Peers(peers), **given), Results()
    where = ledger.machine(scratch)
    try:
        chosen = groups or tuple(WORKS)
        for number, group in enumerate(chosen, 1):
            console.print(f"{group} ...")
            # Spark and its JVM are loaded only for theirs
            module = import_module(named(f"tools.dev.bench.works.{WORKS[group].module}"))
            before, measured = ledger.load(), Results()
            try:
                with working(f"{group}, {number} of {len(chosen)}"):
                    module.measure(asked, measured)
            except NoCompiler as missing:
                click.echo(f"{group}: {missing}", err=True)
                continue
            every.figures += measured.figures
            every.ratios += measured.ratios
            if ledger_file is not None:
                ledger.keep(ledger_file, [ledger.entry(group, measured, where, (before, ledger.load()), asked.repeat)])
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    show(every, console)
    for line in json_lines(every):
        click.echo(line)
        if json_file is not None:
            with json_file.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
