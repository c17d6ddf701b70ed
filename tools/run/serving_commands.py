"""`slipstream wait` and `slipstream stop`, as they are typed."""

from __future__ import annotations

import click

from tools.common.given_path import GivenPath
from tools.common.lazy_group import done_by

STORE = click.argument("store", type=GivenPath(file_okay=False))
START_SECONDS = 300.0
WANTED = click.Choice(["serves", "ready", "well"])


@click.command(epilog="Exit codes: 0 it is so; 1 it is not so in time, or a port is taken; 3 no broker serves in time.")
@STORE
@click.option(
    "--for", "wanted", type=WANTED, default="serves", show_default=True,
    help="serves: clients are served. ready: as /readyz, a slave follows its master. well: nothing is wrong.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(0), default=START_SECONDS, show_default=True, metavar="SECONDS",
    help="Give up after this many seconds.",
)  # fmt: skip
@done_by("tools.run.serving:wait")
def wait() -> None:
    """Wait until the broker on STORE serves."""


@click.command(epilog="Exit codes: 0 it has ended; 1 not in time; 3 no broker runs there.")
@STORE
@click.option(
    "--timeout", type=click.FloatRange(0), default=START_SECONDS, show_default=True, metavar="SECONDS",
    help="Give up waiting after this many seconds; the broker goes on stopping.",
)  # fmt: skip
@done_by("tools.run.serving:stop")
def stop() -> None:
    """Stop the broker on STORE in order, and wait for its end."""
