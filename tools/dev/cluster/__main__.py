"""The cluster demonstration: namespaces, Spark, two replicas and an executor without one; writes docs/cluster.md.

python -m tools.dev.cluster [--small] [--ledger docs/cluster.md]
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ipc.module_names import named
from spark_bridge import java_home
from tools.common.watch import plain_console
from tools.dev.cluster import enclosure
from tools.dev.cluster.ledger import page
from tools.dev.cluster.nodes import NodeFailed
from tools.dev.cluster.play import Play, Size

SMALL = Size(workers=2, slave=3, messages=40_000, body_bytes=4096, has_all=False)
USAGE = 2


@click.command()
@click.option("--ledger", type=click.Path(path_type=Path, dir_okay=False), help="A page to write with the figures.")
@click.option("--small", is_flag=True, help="Two workers, one of them beside a replica, and a small log.")
def main(ledger: Path | None, small: bool) -> None:
    """Run all of it in namespaces that end with this command; 0 only if every check held."""
    place = enclosure.memory()
    if place is not None:
        sys.exit(play(place, SMALL if small else Size(), ledger))
    try:
        java_home.ensure()
        code = enclosure.enclosed(named("tools.dev.cluster"), sys.argv[1:])
    except (enclosure.NoNamespaces, java_home.JavaMissing) as error:
        click.echo(f"slipstream: {error.code}: {error}", err=True)
        sys.exit(USAGE)
    sys.exit(code)


def play(place: Path, size: Size, ledger: Path | None) -> int:
    """The whole of it, as the first process inside."""
    console = plain_console()
    one = Play(console, place, size)
    try:
        one.all()
    except NodeFailed as failed:
        one.checks.add(False, str(failed))
    if ledger is not None and one.checks.all_true:
        ledger.write_text(page(one.outcome))
    console.print("everything is true" if one.checks.all_true else "NOT everything is true", style="bold")
    return 0 if one.checks.all_true else 1


if __name__ == "__main__":
    main()
