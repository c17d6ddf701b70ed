"""`slipstream namesrv`, as it is typed: what its file says, and the port that it listens on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from engine.errors import StartRefused
from store.compat import LINES, OF_NAME_SERVERS
from tools.common.given_path import GivenPath
from tools.run.serving_commands import ServerCommand

KV_FILE, PORT = "kvConfig.json", 9876
EVERY_HOST = "0.0.0.0"  # its file does not say which hosts it serves


@click.command(cls=ServerCommand)
@click.option(
    "-c",
    "--config",
    "file",
    type=GivenPath(),
    metavar="FILE",
    help="Properties file with listenPort, bindAddress and other keys. Default: none.",
)
@click.option(
    "--host",
    "--bind-address",
    metavar="ADDRESS",
    help="bindAddress, the address to listen on. Default: the file's, else all addresses.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help=f"listenPort; 0 for any free port. Default: the file's, else {PORT}.",
)
@click.option(
    "--compat",
    type=click.Choice(list(LINES)),
    default=OF_NAME_SERVERS,
    help=f"RocketMQ version whose behaviour to follow. Default: {OF_NAME_SERVERS}.",
)
@click.option(
    "--directory",
    type=GivenPath(path_type=Path, file_okay=False),
    default=Path.home() / "namesrv",
    help=f"Directory of {KV_FILE}, if the file has no kvConfigPath. Default: ~/namesrv.",
)
@click.option(
    "--order-message-enable",
    is_flag=True,
    help="orderMessageEnable: include in routes the order of queues of ordered topics.",
)
@click.option(
    "--support-acting-master", is_flag=True, help="supportActingMaster (5): let a slave stand in for a missing master."
)
def namesrv(
    file: str | None,
    host: str | None,
    port: int | None,
    compat: str,
    directory: Path,
    order_message_enable: bool,
    support_acting_master: bool,
) -> int:
    """Run a name server until it is stopped.

    Brokers register there, and clients ask it which brokers have a topic. Once it serves, it writes one line that
    begins with `ready:` to standard output. It does not authenticate clients; remotingAllowList, registerAllowList and
    adminAllowList in its file list the addresses that may connect, register and change settings.

    Without a terminal, SIGHUP makes it read its file again. Without a file, or when its terminal closes, SIGHUP stops
    it. With --detach, the exit code is 0 once the name server serves, else the name server's.
    """
    written = _written(file)
    from engine.net.listeners import bind_address, listen
    from engine.net.tls import server_tls
    from engine.settings.tls_mode import TlsMode

    at = bind_address(host or written.get("host"), EVERY_HOST)
    try:
        listening = listen(at, written.get("port", PORT) if port is None else port)
    except OSError as error:
        raise StartRefused("the name server", error.strerror or str(error), "see --port and --host") from None
    from engine.protocol.access.rights import Rules
    from engine.remoting.sockets.server import ServerLimits
    from engine.settings.keys import REMOTING_CONNECTIONS
    from engine.settings.name_server_keys import log_settings_of

    how = server_tls(written.get("tls_server_mode", TlsMode.PERMISSIVE), written.get("tls_config_file"))
    from tools.run.namesrv import NameServerFile, serve  # slow to load: what stops a start is reported before

    flags = {"order_message_enable": order_message_enable, "support_acting_master": support_acting_master}
    lists = (written.get(f"{who}_allow_list") for who in ("remoting", "admin", "register"))
    return serve(
        listening,
        compat,
        written.get("kv_path", directory / KV_FILE),
        **{name: value or written.get(name, False) for name, value in flags.items()},
        rules=Rules(*lists),
        limits=ServerLimits(connections=written.get("remoting_connections_max", REMOTING_CONNECTIONS)),
        how=how,
        log=log_settings_of(written),
        file=NameServerFile(file, written, flags) if file else None,
    )


def _written(file: str | None) -> dict[str, Any]:
    """Return what the file says. Raises ConfigError."""
    if file is None:
        return {}
    from engine.settings import name_server_keys

    written, warnings = name_server_keys.load(file)
    for warning in warnings:
        click.echo(f"slipstream: warning: {warning}", err=True)
    return written
