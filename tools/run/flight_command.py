"""`slipstream flight`, as it is typed."""

from __future__ import annotations

from pathlib import Path

import click

from tools.common.given_path import GivenPath
from tools.common.lazy_group import done_by
from tools.run.serving_commands import ServerCommand

PORT = 8815


@click.command(cls=ServerCommand, epilog="It has the rights of its user, and only reads without --writable.")
@click.argument("store", required=False, type=GivenPath(path_type=Path))
@click.option("-c", "--config", "file", type=GivenPath(), help="A broker.properties: its store, TLS and allow list.")
@click.option("--host", default="127.0.0.1", show_default=True, help="An address of this machine to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: any free one.")
@click.option("--token-file", type=GivenPath(path_type=Path), help="The token that clients send. Else a new one.")
@click.option("--no-token", is_flag=True, help="Ask nobody for a token; on loopback only.")
@click.option("--tls-config", type=GivenPath(path_type=Path), help="TLS: RocketMQ's tls.properties.")
@click.option("--expose", is_flag=True, help="Listen without TLS where others reach it; the token crosses the network.")
@click.option("--allow", help="Addresses and networks that may connect, ; between them. Else remotingAllowList's.")
@click.option("-t", "--topic", "topics", multiple=True, help="Serve this topic and no other; repeatable. Else all.")
@click.option("--streams", type=click.IntRange(1, 4096), default=128, show_default=True, help="At once, at most.")
@click.option("--idle-seconds", type=click.IntRange(1, 86400), default=120, show_default=True,
              help="A client that takes nothing for so long is hung up on.")  # fmt: skip
@click.option("--writable", is_flag=True, help="Take messages, too (DoPut), while a master runs on the store.")
@click.option("--write-token-file", type=GivenPath(path_type=Path),
              help="The token of those who may write; with the other one clients only read.")  # fmt: skip
@done_by("tools.run.flight:serve")
def flight() -> None:
    """Serve a store's messages as Arrow Flight, to programs on hosts without a replica.

    STORE is any store of this machine, with a broker or without; -c names the one of a broker. Once it serves, one line
    that begins with `ready:` goes to standard output, with the address and, where it was made here, the token; with
    --detach the exit code is 0 then, else that of the server. Ends with SIGTERM or Ctrl-C.
    """
