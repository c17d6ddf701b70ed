"""`slipstream ha explain`, at work: what an acknowledgement means, by a file or by a running broker."""

from __future__ import annotations

import os
from contextlib import closing

import click

from engine.protocol.ha.explanation import Explanation
from engine.protocol.ha.explanation import explain as explanation_of
from engine.settings import replication
from engine.settings.config import load
from store.reading.extent import Running, require_running
from tools.common.output_form import json_text


def explain(target: str, as_json: bool) -> int:
    """What each answer to a put means: of the broker that runs on the store TARGET, or of the file TARGET."""
    explanation = _of_file(target) if os.path.isfile(target) else _of_broker(require_running(target))
    if as_json:
        plain = explanation._asdict()
        for part in ("answers", "survives", "timers"):
            plain[part] = {row.name: row.meaning for row in plain[part]}
        click.echo(json_text("ha.explain", plain))
    else:
        _show(explanation)
    return 0


def _of_file(file: str) -> Explanation:
    """Explain the settings of a broker.properties file. Raises ConfigError."""
    config, warnings = load(file)
    for warning in warnings:
        click.echo(f"slipstream: warning: {warning}", err=True)
    return explanation_of(replication.of_config(config))


def _of_broker(running: Running) -> Explanation:
    from engine.shared_memory.cursors import BrokerCounters  # with numpy, which a file does not need

    with closing(BrokerCounters.attach(running.region_directory)) as counters:
        return explanation_of(replication.of_running(running.settings), counters.in_sync_slaves.read())


def _show(explanation: Explanation) -> None:
    from tools.common import watch
    from tools.show.ha_tables import explanation_view

    console = watch.plain_console()
    console.print(explanation_view(explanation), soft_wrap=not console.is_terminal)
