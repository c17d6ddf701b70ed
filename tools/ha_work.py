"""`slipstream ha`, at work: what an acknowledgement means, and how each replica is doing."""

from __future__ import annotations

import json
from pathlib import Path

import click

from engine import ha_settings
from engine.config import load
from engine.cursors import Board
from engine.ha_status import ha_status
from engine.protocol.ha_explain import Explanation
from engine.protocol.ha_explain import explain as explanation_of
from store import published
from tools import watching
from tools.ha_view import explanation_view, status_view


def _explanation(target: str) -> Explanation:
    """Of a broker.properties file, or of the broker that runs on a store. Raises ConfigError, NoBroker."""
    if Path(target).is_file():
        config, warnings = load(target)
        for warning in warnings:
            click.echo(f"slipstream: warning: {warning}", err=True)
        return explanation_of(ha_settings.of_config(config))
    running = published.require_running(target)
    board = Board.attach(running.region_directory)
    try:
        return explanation_of(ha_settings.of_running(running.settings), board.in_sync_slaves.read())
    finally:
        board.counters.close()


def explain(target: str, as_json: bool) -> int:
    """What each answer to a put means: of the broker that runs on the store TARGET, or of the file TARGET."""
    found = _explanation(target)
    if as_json:
        plain = found._asdict()
        for part in ("answers", "survives", "timers"):
            plain[part] = {row.name: row.meaning for row in plain[part]}
        click.echo(json.dumps(plain))
    else:
        console = watching.plain_console()
        console.print(explanation_view(found), soft_wrap=not console.is_terminal)
    return 0


def status(store: str, watch: bool, as_json: bool) -> int:
    """Each replica of the broker on STORE, once or until Ctrl-C. Raises NoBroker."""
    if as_json:
        watching.show_json(lambda: ha_status(store).to_json(), watch)
    elif watch:
        watching.watch(lambda: status_view(ha_status(store)))
    else:
        watching.plain_console().print(status_view(ha_status(store)))
    return 0
