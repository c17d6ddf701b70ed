"""The line that says that a server serves, to whoever started it; who has gone meanwhile keeps it from nothing."""

from __future__ import annotations

import os
import sys

import click


def announce(line: str) -> None:
    """To standard output; nowhere where that cannot be written: its terminal or its reader may have gone."""
    try:
        click.echo(line)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)  # what is left of the line is not tried again at the exit
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
