"""`make bench`: every measurement of this folder, or those named, in one run.

    python -m tools.bench [GROUPS] [--peers FOLDER] [--rocketmq FOLDER] [--kafka FOLDER] [--json FILE]

Without the peers' folders only our own figures are printed: there is nothing to compare them with.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import click
from rich.console import Console

from tools.bench.bed.figures import Figure, Ratio, json_lines, show
from tools.bench.bed.peers import Peers
from tools.bench.works import (
    admin_start,
    append,
    catch_up,
    dispatch,
    idle,
    index_put,
    latency,
    opening,
    roll,
    slaves,
    sync_flush,
    verify,
)

GROUPS = (
    "append", "latency", "slaves", "catch-up", "idle", "admin", "dispatch", "index-put", "sync-flush", "roll",
    "verify", "opening", "spark", "spark-stream",
)  # fmt: skip
FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command()
@click.argument("groups", nargs=-1, type=click.Choice(GROUPS))
@click.option("--peers", type=FOLDER, help="The folder of the peers' program, peers.py.")
@click.option("--rocketmq", type=FOLDER, help="The folder of the program that measures RocketMQ, measure.py.")
@click.option("--kafka", type=FOLDER, help="A folder: Kafka's jars in broker/, Spark's connector in jars/.")
@click.option("--directory", type=FOLDER, help="Where stores go (the system's temporary directory).")
@click.option("--repeat", default=3, show_default=True, help="Runs of each work; the median counts.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Add a JSON object a line to this file.")
def main(
    groups: tuple[str, ...], peers: Path | None, rocketmq: Path | None, kafka: Path | None, directory: Path | None,
    repeat: int, json_file: Path | None,
) -> None:  # fmt: skip
    """Measure GROUPS (all of them when none is named)."""
    console = Console()
    scratch = Path(tempfile.mkdtemp(prefix="slipstream-bench-", dir=directory))
    figures: list[Figure] = []
    ratios: list[Ratio] = []
    try:
        for group in groups or GROUPS:
            console.print(f"{group} ...")
            found = _measure(group, scratch, Peers(peers), rocketmq, kafka, repeat, console)
            figures += found[0]
            ratios += found[1]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    show(figures, ratios, console)
    for line in json_lines(figures, ratios):
        click.echo(line)
        if json_file is not None:
            with json_file.open("a") as file:
                file.write(line + "\n")


def _measure(
    group: str, scratch: Path, peers: Peers, rocketmq: Path | None, kafka: Path | None, repeat: int, console: Console
) -> tuple[list[Figure], list[Ratio]]:
    if group == "append":
        return append.measure(scratch, peers, repeat)
    if group == "latency":
        return latency.measure(scratch, peers, rocketmq, repeat)
    if group == "catch-up":
        return catch_up.measure(scratch, peers, rocketmq, repeat)
    if group == "slaves":
        return slaves.measure(scratch, repeat)
    if group == "admin":
        return admin_start.measure(scratch, repeat)
    if group == "idle":
        return idle.measure(scratch)
    if group == "dispatch":
        return dispatch.measure(scratch, repeat)
    if group == "index-put":
        return index_put.measure(scratch, repeat)
    if group == "sync-flush":
        return sync_flush.measure(scratch, repeat)
    if group == "roll":
        return roll.measure(scratch, repeat)
    if group == "opening":
        return opening.measure(scratch, repeat)
    if group == "verify":
        return verify.measure(scratch, repeat)
    from tools.bench.works import (
        spark,
        spark_stream,  # Spark and its JVM are loaded only for them
    )

    if group == "spark-stream":
        return spark_stream.run(30, 768, repeat, console, scratch)

    jars = (kafka / "broker", kafka / "jars") if kafka is not None else (None, None)
    return spark.run(512, repeat, console, scratch, *jars)


if __name__ == "__main__":
    main()
