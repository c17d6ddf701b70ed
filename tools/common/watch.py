"""`--watch`: a view again and again, in place on a terminal; into a pipe or a file a block a second, plain text."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

from tools.common.output_form import ESCAPED, json_text

REFRESH_SECONDS = 1.0
PIPE_COLUMNS = 1 << 16  # more than any line has


def plain_console(*, is_table: bool = False) -> Console:
    """A console for standard output; one that is no terminal gets no control codes, whatever the environment says.

    A table's cells wrap at a terminal's width; other lines go on behind its last column. Without a terminal nothing is
    cut or wrapped.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", ESCAPED):
        sys.stdout.reconfigure(errors="replace")  # a terminal without µ is shown something else
    if sys.stdout.isatty():
        return Console(soft_wrap=not is_table)
    return Console(soft_wrap=not is_table, width=PIPE_COLUMNS, force_terminal=False, no_color=True, color_system=None)


def ticks() -> Iterator[None]:
    """Yield at once, and then each second, however long the work between takes."""
    due = time.monotonic()
    while True:
        yield
        due = max(due + REFRESH_SECONDS, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def watch(view: Callable[[], RenderableType]) -> None:
    """Show the view until Ctrl-C, or until `view` raises."""
    console = plain_console()
    if not console.is_terminal:
        for _ in ticks():
            console.print(view())
            console.print()
            sys.stdout.flush()
    with Live(console=console, auto_refresh=False, screen=True) as live:
        for _ in ticks():
            live.update(view(), refresh=True)


def show_json(value: Callable[[], Any], again: bool, schema: str = "") -> None:
    """Print a JSON object; with `again` one a line each second. Without a schema, the keys name what it shows."""
    for _ in ticks():
        sys.stdout.write((json_text(schema, value()) if schema else json.dumps(value())) + "\n")
        sys.stdout.flush()
        if not again:
            return
