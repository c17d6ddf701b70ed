"""`slipstream flight`, as it is typed."""

from __future__ import annotations

from pathlib import Path

import click

from tools.common.given_path import GivenPath
from tools.common.lazy_group import done_by
from tools.common.numbers import number
from tools.run.serving_commands import ServerCommand

HOST, PORT = "127.0.0.1", 8815
STREAMS, IDLE_SECONDS = 128, 120


@click.command(
    cls=ServerCommand, epilog="The server has the permissions of its user. Without --writable it only reads."
)
@click.argument("store", required=False, type=GivenPath(path_type=Path))
@click.option(
    "-c",
    "--config",
    "file",
    type=GivenPath(),
    metavar="FILE",
    help="A broker.properties file: use its store, TLS and allow list. Default: none; give STORE.",
)
@click.option("--host", default=HOST, metavar="ADDRESS", help=f"Address of this host to listen on. Default: {HOST}.")
@number("--port", click.IntRange(0, 65535), PORT, "PORT", "Port to listen on; 0 for any free port.")
@click.option(
    "--token-file",
    type=GivenPath(path_type=Path),
    metavar="FILE",
    help="File with the token that clients send. Default: a new token, which is printed.",
)
@click.option("--no-token", is_flag=True, help="Accept clients without a token; on loopback only.")
@click.option(
    "--tls-config",
    type=GivenPath(path_type=Path),
    metavar="FILE",
    help="Serve with TLS, as this tls.properties file of RocketMQ says. Default: the broker's, else no TLS.",
)
@click.option(
    "--expose", is_flag=True, help="Listen without TLS where other hosts can connect; the token crosses the network."
)
@click.option(
    "--allow",
    metavar="LIST",
    help="Addresses and networks that may connect, separated by `;`. Default: remotingAllowList of -c.",
)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="Serve only this topic; repeatable. Default: all topics.",
)
@number("--streams", click.IntRange(1, 4096), STREAMS, "N", "Maximum number of streams at a time.")
@number(
    "--idle-seconds",
    click.IntRange(1, 86400),
    IDLE_SECONDS,
    "SECONDS",
    "Disconnect a client that reads nothing for this many seconds.",
)
@click.option("--writable", is_flag=True, help="Also accept messages (DoPut) while a master runs on the store.")
@click.option(
    "--write-token-file",
    type=GivenPath(path_type=Path),
    metavar="FILE",
    help="File with the token for writing; with the other token, clients can only read.",
)
@done_by("tools.run.flight:serve")
def flight() -> None:
    """Serve a store's messages over Arrow Flight.

    Programs on hosts without a replica can then read them. STORE is a store on this host, with or without a broker; or
    give -c with a broker's file. Once the server is ready, it writes one line that begins with `ready:` to standard
    output, with the address and a newly made token. SIGTERM and Ctrl-C stop it. With --detach, the exit code
    is 0 once the server is ready, else the server's.
    """
