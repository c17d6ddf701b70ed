"""`slipstream web`, as it is typed."""

from __future__ import annotations

from pathlib import Path

import click

from tools.common.given_path import GivenPath
from tools.common.lazy_group import done_by
from tools.common.tls import TLS_CONFIG

STORES_MAX = 16


@click.command(epilog="It reads what the other commands read; --allow-digest is the one thing that it may write.")
@click.argument("stores", metavar="STORE...", nargs=-1, required=True, type=GivenPath(path_type=Path))
@click.option("--port", type=click.IntRange(0, 65535), default=8911, show_default=True, help="0: any free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="An address of this machine to listen on.")
@click.option("--expose", is_flag=True, help="Listen on a --host that others reach; the token crosses the network.")
@click.option("--name", "names", multiple=True, help="With --expose: a host name that browsers may use; repeatable.")
@click.option("-n", "--namesrvAddr", "name_servers", default="", help="host:port;... whose brokers are shown, too.")
@click.option("--allow-digest", is_flag=True, help="Let the page write STORE's digests (`slipstream log digest`).")
@click.option("--tls-config", envvar=TLS_CONFIG, help="TLS to name servers and brokers: RocketMQ's tls.properties.")
@done_by("tools.web.server:serve")
def web() -> None:
    """Serve a console for the STOREs in a browser: pipeline, segments, latencies, lag, topics, messages, checks.

    A store without a broker shows its segments and messages. The address that is printed has a token in it: who has it
    may read the stores' messages. Ends with Ctrl-C.
    """
