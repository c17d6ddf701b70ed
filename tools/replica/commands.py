"""`slipstream replica`, as it is typed."""

from __future__ import annotations

import click

from tools.common.output_form import form
from tools.common.progress import OPTION
from tools.log.options import STORE, store_command

EPILOG = (
    "Exit codes: 0 all well; 1 the logs are not one history, or this one is ahead; 2 wrong usage or not a store;"
    " 3 no answer from HOST:PORT; 4 damage"
)
WITH = "Another store of the pair: a directory (a copy, read in place), or HOST:PORT of a running Slipstream broker."


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def replica() -> None:
    """Compare a store's log with another one of its pair."""


@replica.command(epilog=EPILOG)
@STORE
@click.option("--with", "other", required=True, metavar="OTHER", help=WITH)
@OPTION
@form("One JSON object.")
@store_command("tools.replica.check:check")
def check() -> None:
    """Say whether STORE's log and OTHER's are one history, which record is the last common one, and what to do next.

    A log that a broker is writing is compared up to its published end; nothing is changed.
    """
