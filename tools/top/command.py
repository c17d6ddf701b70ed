"""`slipstream top`, as it is typed."""

from __future__ import annotations

import click

from tools.show.commands import STORE, shown_by

WAIT_SECONDS = 60.0


@click.command(
    epilog="Keys: 1 to 5 and Tab choose a view, up and down a row, Enter looks at it closely, Esc goes back, s sorts by"
    " the next column, r the other way round, / filters by name, Space stops the clock, h helps, q quits. Colours are"
    " left out where NO_COLOR is set; the mouse stays the terminal's."
)
@STORE
@click.option("--once", is_flag=True, help="Print one snapshot as text and end; needs no terminal.")
@click.option(
    "-i", "--interval", type=click.FloatRange(0.2, 60.0), default=2.0, show_default=True,
    help="Seconds between two looks.",
)
@click.option(
    "--wait", type=click.FloatRange(0.0, 86_400.0), default=WAIT_SECONDS, show_default=True,
    help="For how many seconds to wait for a broker that has ended to come back.",
)  # fmt: skip
@shown_by("tools.top.run:run")
def top() -> None:
    """Show the broker that runs on STORE, live: pipeline, replicas, topics, producers, consumer groups, roles.

    All is read from its shared memory; only for the members of a group that is looked at closely the broker is asked.
    """
