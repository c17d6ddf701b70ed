"""`slipstream namesrv`, as it is typed."""

from __future__ import annotations

from pathlib import Path

import click

from tools.lazy_group import done_by

KV_FILE = "kvConfig.json"


@click.command()
@click.option("-c", "--config", "file", type=click.Path(), help="A properties file: listenPort, bindAddress, ...")
@click.option("--host", "--bind-address", help="The address to listen on (bindAddress). Else all of this host's.")
@click.option("--port", type=click.IntRange(0, 65535), help="listenPort, else 9876. 0: any that is free.")
@click.option("--compat", type=click.Choice(["4.9", "5"]), default="5", show_default=True, help="As which version.")
@click.option(
    "--directory", type=click.Path(path_type=Path, file_okay=False), default=Path.home() / "namesrv",
    show_default="~/namesrv", help=f"Where {KV_FILE} lies, unless kvConfigPath says so.",
)  # fmt: skip
@click.option("--order-message-enable", is_flag=True, help="orderMessageEnable: routes say which topics are ordered.")
@click.option("--support-acting-master", is_flag=True, help="supportActingMaster (5): slaves may stand in.")
@done_by("tools.namesrv:serve")
def namesrv() -> None:
    """Run a name server: brokers register there, clients ask it where topics are.

    Once it serves, one line that begins with `ready:` goes to standard output. Nobody is asked who it is: let only
    hosts that you trust reach the port.
    """
