"""`slipstream counters`: every counter of a running broker, read from the mapped region alone."""

from __future__ import annotations

import json
import time

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from ipc.counters import Counters
from store.published import require_running

REFRESH_SECONDS = 0.5


def as_table(counters: Counters) -> Table:
    """One row for each counter, in the region's order."""
    table = Table(box=None, pad_edge=False)
    for heading in ("counter", "kind", "owner"):
        table.add_column(heading, no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    for view in counters:
        table.add_row(view.label, view.kind, view.owner, str(view.value))
    return table


@click.command()
@click.argument("store", type=click.Path(file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="One JSON object: label to kind, owner and value.")
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C.")
def counters(store: str, as_json: bool, watch: bool) -> int:
    """Show all counters of the broker that runs on STORE; no process of it is asked or disturbed."""
    found = require_running(store).counters()
    try:
        if as_json:
            click.echo(json.dumps({v.label: {"kind": v.kind, "owner": v.owner, "value": v.value} for v in found}))
        elif watch:
            with Live(as_table(found), auto_refresh=False, screen=True) as live:
                while True:
                    time.sleep(REFRESH_SECONDS)
                    require_running(store)
                    live.update(as_table(found), refresh=True)
        else:
            Console(soft_wrap=True).print(as_table(found))
    finally:
        found.close()
    return 0
