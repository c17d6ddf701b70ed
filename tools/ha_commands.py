"""`slipstream ha`: what an acknowledgement means, and how each replica is doing, for people and as JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live

from engine import ha_settings
from engine.config import load
from engine.cursors import Board
from engine.ha_status import ha_status
from engine.protocol.ha_explain import Explanation
from engine.protocol.ha_explain import explain as explanation_of
from store import published
from tools.ha_view import explanation_view, status_view

REFRESH_SECONDS = 1.0
FORMS = click.Choice(["table", "json"])


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def ha() -> None:
    """Show replication: what an acknowledgement means, how each replica is doing."""


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


@ha.command()
@click.argument("target", type=click.Path())
@click.option("-o", "--output", type=FORMS, default="table", show_default=True, help="For people, or one JSON object.")
def explain(target: str, output: str) -> int:
    """Say what each answer to a put means: of the broker that runs on the store TARGET, or of the file TARGET."""
    found = _explanation(target)
    if output == "json":
        plain = found._asdict()
        for part in ("answers", "survives", "timers"):
            plain[part] = {row.name: row.meaning for row in plain[part]}
        click.echo(json.dumps(plain))
    else:
        Console(soft_wrap=not Console().is_terminal).print(explanation_view(found))
    return 0


@ha.command()
@click.argument("store", type=click.Path(file_okay=False))
@click.option("--watch", is_flag=True, help="Refresh each second, until Ctrl-C or until the broker has ended.")
@click.option("-o", "--output", type=FORMS, default="table", show_default=True, help="For people, or JSON.")
def status(store: str, watch: bool, output: str) -> int:
    """Show each replica of the broker on STORE: state, reason code, lag, rate, time to catch up, rejected reports."""
    if output == "json":
        click.echo(json.dumps(ha_status(store).to_json()))
        while watch:
            time.sleep(REFRESH_SECONDS)
            click.echo(json.dumps(ha_status(store).to_json()))
        return 0
    if not watch:
        Console(soft_wrap=True).print(status_view(ha_status(store)))
        return 0
    with Live(auto_refresh=False, screen=Console().is_terminal) as live:
        while True:
            live.update(status_view(ha_status(store)), refresh=True)
            time.sleep(REFRESH_SECONDS)
