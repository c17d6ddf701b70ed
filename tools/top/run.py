"""`slipstream top`, at work: the live view where there is a terminal, else one snapshot as text when asked for."""

from __future__ import annotations

import asyncio
import sys

import click

from engine.monitoring.live.broker import LiveBroker, Look
from ipc.clock import monotonic_ms
from tools.common import watch
from tools.top.drawing import Glyphs, glyphs_for
from tools.top.page import page

WIDTH = 80


def run(store: str, once: bool, interval: float, wait: float) -> int:
    """Run until it is ended, or print once. Raises NoBroker once the broker has been gone for `wait` seconds."""
    if once:
        _print_once(store, interval)
        return 0
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("top needs a terminal; --once prints one view without it")
    from tools.top.app import Top  # with textual, which a snapshot does not need

    app = Top(store, interval, wait, glyphs_for(sys.stdout.encoding))
    app.run(mouse=False)
    if app.was_interrupted:
        raise KeyboardInterrupt
    if app.error is not None:
        raise app.error
    return 0


def _print_once(store: str, interval: float) -> None:
    """Two looks, so that there are rates."""
    with LiveBroker(store) as broker:
        broker.look(at_once=True)
        began_ms = monotonic_ms()
        asyncio.run(asyncio.sleep(interval))
        look = broker.look(at_once=True)
        while not look.groups_are_whole and monotonic_ms() - began_ms < 60_000:  # of very many groups at first a part
            look = broker.look(at_once=True)
    _print(look, glyphs_for(sys.stdout.encoding))


def _print(look: Look, glyphs: Glyphs) -> None:
    console = watch.plain_console()
    width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    for line in page(look, width, glyphs):
        console.print(line, soft_wrap=True, highlight=False)
