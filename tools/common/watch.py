"""`--watch`: a view again and again, in place on a terminal; into a pipe or a file a block a second, plain text."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

REFRESH_SECONDS = 1.0


def plain_console() -> Console:
    """A console for standard output; one that is no terminal gets no control codes, whatever the environment says."""
    if sys.stdout.isatty():
        return Console(soft_wrap=True)
    return Console(soft_wrap=True, force_terminal=False, no_color=True, color_system=None)


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


def show_json(value: Callable[[], Any], again: bool) -> None:
    """One JSON object; with `again` one a line each second."""
    for _ in ticks():
        sys.stdout.write(json.dumps(value()) + "\n")
        sys.stdout.flush()
        if not again:
            return
