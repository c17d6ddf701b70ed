"""`slipstream top`, as it is typed."""

from __future__ import annotations

import click

from tools.common.numbers import number
from tools.show.commands import STORE, shown_by

INTERVAL_SECONDS, WAIT_SECONDS = 2.0, 60.0


@click.command(
    epilog="Keys: 1 to 5 and Tab choose a view, up and down choose a row, Enter opens it, Esc returns, s sorts by"
    " the next column, r reverses the order, / filters by name, Space pauses, h shows help, q quits."
    " NO_COLOR turns colours off."
)
@STORE
@click.option("--once", is_flag=True, help="Print one view as text and exit; needs no terminal.")
@number("-i --interval", click.FloatRange(0.2, 60.0), INTERVAL_SECONDS, "SECONDS", "Refresh every SECONDS seconds.")
@number(
    "--wait",
    click.FloatRange(0.0, 86_400.0),
    WAIT_SECONDS,
    "SECONDS",
    "When the broker ends, wait this many seconds for it to start again.",
)
@shown_by("tools.top.run:run")
def top() -> None:
    """Watch the broker on STORE live in the terminal.

    Views: pipeline, replicas, topics, producers, consumer groups, roles. Reads shared memory only; the broker itself is
    queried only for the members of a group that you open.
    """
