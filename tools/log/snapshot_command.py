"""`slipstream snapshot`: name the state of a store, so that reads of a growing log agree on it."""

from __future__ import annotations

import click

from tools.common.duration import Duration
from tools.common.lazy_group import done_by
from tools.common.output_form import form


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[NAME] STORE")
@click.option("--list", "is_list", is_flag=True, help="Show the snapshots of STORE; there is no NAME.")
@click.option("--drop", "is_drop", is_flag=True, help="Remove the snapshot: what only it kept may go.")
@click.option(
    "--keep", "keep_ms", type=Duration(), default="24h", show_default=True,
    help="How long retention keeps what it names, 31 days at most; then it is no snapshot any more.",
)  # fmt: skip
@form("One JSON object.")
@done_by("tools.log.snapshots:snapshot")
def snapshot() -> None:
    """Name the state that STORE is in now, so that reads of its growing log agree: option("snapshot", NAME) in Spark.

    All that was acknowledged before is in it, nothing that comes later. It is of this directory: a copy does not have
    it. Retention keeps its part of the log until it expires, however old that is, but not when the disk is used above
    diskSpaceCleanForciblyRatio or has no room: a read says then what is gone. A store has 100 at most.
    """
