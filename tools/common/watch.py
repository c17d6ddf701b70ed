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

from tools.common.output_form import json_text

REFRESH_SECONDS = 1.0


def plain_console(width_without_terminal: int | None = None) -> Console:
    """A console for standard output; one that is no terminal gets no control codes, whatever the environment says.

    Lines go on behind a terminal's last column, and are cut to a width where one is given for what is no terminal.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")  # a terminal without µ is shown something else
    if sys.stdout.isatty():
        return Console(soft_wrap=width_without_terminal is None)
    return Console(
        soft_wrap=width_without_terminal is None, width=width_without_terminal, force_terminal=False, no_color=True,
        color_system=None,
    )  # fmt: skip


def ticks() -> Iterator[None]:
    """At once, and then each second, however long the work between takes."""
    due = time.monotonic()
    while True:
        yield
        due = max(due + REFRESH_SECONDS, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def watch(view: Callable[[], RenderableType]) -> None:
    """Until Ctrl-C, or until `view` raises."""
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
    """One JSON object; with `again` one a line each second. Without a schema its keys are names of what it shows."""
    for _ in ticks():
        sys.stdout.write((json_text(schema, value()) if schema else json.dumps(value())) + "\n")
        sys.stdout.flush()
        if not again:
            return
