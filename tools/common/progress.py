"""A progress bar on standard error: only where that is a terminal, or when asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

Update = Callable[[int, int], None]  # done, in all

OPTION = click.option(
    "--progress/--no-progress", "shown", default=None, help="Show a progress bar. Default: only on a terminal."
)


@contextmanager
def progress(title: str, shown: bool | None) -> Iterator[Update]:
    """Yield the function to call with how much is done and how much there is; the bar goes when the work ends."""
    if shown is False or not (shown or sys.stderr.isatty()):  # whatever FORCE_COLOR says
        yield lambda _done, _total: None
        return
    from rich.console import Console  # loaded where a bar is shown, not with every command's help
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, force_terminal=True if shown else None)
    columns = (TextColumn(title), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(title, total=None)
        yield lambda done, total: bars.update(task, total=total, completed=done)


@contextmanager
def working(title: str, shown: bool | None = None) -> Iterator[Callable[[str], None]]:
    """Show that something is at work, and for how long, where the amount of work is unknown.

    What it gives is to be called with another title.
    """
    if shown is False or not (shown or sys.stderr.isatty()):
        yield lambda _title: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as screen:  # the terminal, whatever descriptor 2 is meanwhile
        console = Console(file=screen, force_terminal=True)
        with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bars:
            task = bars.add_task(title, total=None)
            yield lambda now: bars.update(task, description=now)
