"""`slipstream doctor`, as it is typed."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from store.errors import NotAStore
from tools.common.lazy_group import done_by
from tools.common.output_form import form
from tools.common.tls import TLS_CONFIG

ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:/\s\[\]]+):([0-9]{1,5})")


def of_target(where: str) -> Callable[[Callable[[], None]], Callable[..., Any]]:
    """Make a command like `done_by`; a `target` that is no directory or address fails before the doctor is loaded."""

    def declared(declaration: Callable[[], None]) -> Callable[..., Any]:
        examine = done_by(where)(declaration)

        @wraps(declaration)
        def run(target: str, **arguments: Any) -> Any:
            if ADDRESS.fullmatch(target) is None and not Path(target).is_dir():
                raise NotAStore(target, "it is neither a store's directory nor host:port of a broker")
            return examine(target=target, **arguments)

        return run

    return declared


@click.command(epilog="Exit codes: 0 nothing is wrong; 1 something is; 2 TARGET is neither a store nor an address.")
@click.argument("target")
@click.option("-n", "--namesrvAddr", "name_servers", default="", help="host:port;... beside those of its file.")
@click.option("--strict", is_flag=True, help="What is left open to strangers is wrong, too.")
@click.option("--timeout", type=click.FloatRange(0.1, 600), default=3.0, show_default=True, help="Seconds a question.")
@click.option("--tls-config", envvar=TLS_CONFIG, help="TLS, with this tls.properties file of RocketMQ.")
@form("One JSON object: ok, rows with check, level, reason, what, next.")
@of_target("tools.doctor.doctor:examine")
def doctor() -> None:
    """Look at a running broker from outside: TARGET is its store on this host, or host:port of its listenPort,
    or of a name server.

    Ports and who can reach them, identity and name servers, replication, disk, clocks, segment sizes, history held,
    rights of files: a row each, with a reason code and the command to type next. Nothing is changed.
    """
