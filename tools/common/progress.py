"""A progress bar on standard error: only where that is a terminal, or when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

Update = Callable[[int, int], None]  # done, in all

OPTION = click.option(
    "--progress/--no-progress", "shown", default=None, help="A progress bar; by default on a terminal."
)


@contextmanager
def progress(title: str, shown: bool | None) -> Iterator[Update]:
    """What to call with how much is done and how much there is; the bar goes when the work ends."""
    from rich.console import Console  # loaded where a bar may be shown, not with every command's help
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, force_terminal=True if shown else None)
    if shown is False or not console.is_terminal:
        yield lambda _done, _total: None
        return
    columns = (TextColumn(title), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(title, total=None)
        yield lambda done, total: bars.update(task, total=total, completed=done)
