"""The line that says that a server serves, printed for its caller; a closed output does not stop the server."""

from __future__ import annotations

import os
import sys

import click


def announce(line: str) -> None:
    """Print a line to standard output; do nothing where its terminal or reader has gone."""
    try:
        click.echo(line)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)  # what is left of the line is not tried again at the exit
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
