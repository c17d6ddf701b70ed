"""`slipstream snapshot`: name the state of a store, so that reads of a growing log agree on it."""

from __future__ import annotations

import click

from tools.common.duration import Duration
from tools.common.lazy_group import done_by
from tools.common.output_form import form


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[NAME] STORE")
@click.option("--list", "is_list", is_flag=True, help="List the snapshots of STORE; without NAME.")
@click.option("--drop", "is_drop", is_flag=True, help="Remove the snapshot; retention may delete what only it kept.")
@click.option(
    "--keep",
    "keep_ms",
    type=Duration(),
    default="24h",
    metavar="DURATION",
    help="Time after which the snapshot expires, such as 90m or 7d; at most 31d. Default: 24h.",
)
@form("Print one JSON object.")
@done_by("tools.log.snapshots:snapshot")
def snapshot() -> None:
    """Name the current state of a store for repeatable reads.

    Use it in Spark with option("snapshot", NAME). It contains all messages acknowledged before, and none acknowledged
    later. It belongs to this directory; a copy of the store does not have it.

    Retention keeps the snapshot's part of the log until the snapshot expires. The exception: the disk has no room, or
    its usage is above diskSpaceCleanForciblyRatio; a read then names the missing part. A store can have 100 snapshots.
    """
