"""`slipstream web`, as it is typed."""

from __future__ import annotations

from pathlib import Path

import click

from tools.common.given_path import GivenPath
from tools.common.lazy_group import done_by
from tools.common.numbers import number
from tools.common.tls import SERVERS, TLS_CONFIG, TLS_HELP

STORES_MAX = 16
HOST, PORT = "127.0.0.1", 8911


@click.command(epilog="The console only reads. The one exception is --allow-digest.")
@click.argument("stores", metavar="STORES", nargs=-1, required=True, type=GivenPath(path_type=Path))
@number("--port", click.IntRange(0, 65535), PORT, "PORT", "Port to listen on; 0 for any free port.")
@click.option("--host", default=HOST, metavar="ADDRESS", help=f"Address of this host to listen on. Default: {HOST}.")
@click.option(
    "--expose", is_flag=True, help="Listen on a --host that other hosts can reach; the token crosses the network."
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="With --expose: host name that browsers may use; repeatable. Default: none.",
)
@click.option(
    "-n",
    "--namesrvAddr",
    "name_servers",
    default="",
    metavar=SERVERS,
    help="Name servers whose brokers are also shown, separated by `;`. Default: none.",
)
@click.option("--allow-digest", is_flag=True, help="Let the page write digests, as `slipstream log digest` does.")
@click.option("--tls-config", envvar=TLS_CONFIG, metavar="FILE", help=TLS_HELP)
@done_by("tools.web.server:serve")
def web() -> None:
    """Serve a console for stores and brokers to a browser.

    STORES are one or more store directories. The console shows pipeline, segments, latencies, lag, topics, messages and
    checks; for a store without a broker, segments and messages. The printed address contains a token, and everybody who
    has it can read the messages. Ctrl-C stops the console.
    """
