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
from tools.common.numbers import number
from tools.common.output_form import form
from tools.common.tls import SERVERS, TLS_CONFIG, TLS_HELP

TIMEOUT_SECONDS = 3.0
ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:/\s\[\]]+):([0-9]{1,5})")


def of_target(where: str) -> Callable[[Callable[[], None]], Callable[..., Any]]:
    """Do what `done_by` does, but first raise NotAStore if `target` is neither a directory nor an address."""

    def declared(declaration: Callable[[], None]) -> Callable[..., Any]:
        examine = done_by(where)(declaration)

        @wraps(declaration)
        def run(target: str, **arguments: Any) -> Any:
            if ADDRESS.fullmatch(target) is None and not Path(target).is_dir():
                raise NotAStore(target, "neither the directory of a store nor HOST:PORT of a broker")
            return examine(target=target, **arguments)

        return run

    return declared


@click.command(epilog="Exit codes: 0 nothing is wrong; 1 something is wrong; 2 TARGET is no store and no address")
@click.argument("target")
@click.option(
    "-n",
    "--namesrvAddr",
    "name_servers",
    default="",
    metavar=SERVERS,
    help="Name servers to check in addition to those in the broker's file. Default: none.",
)
@click.option("--strict", is_flag=True, help="Also fail on ports that any host can reach.")
@number("--timeout", click.FloatRange(0.1, 600), TIMEOUT_SECONDS, "SECONDS", "Timeout of each check, in seconds.")
@click.option("--tls-config", envvar=TLS_CONFIG, metavar="FILE", help=TLS_HELP)
@form("Print one JSON object: ok, and rows with check, level, reason, what, next.")
@of_target("tools.doctor.doctor:examine")
def doctor() -> None:
    """Check a running broker from outside and name what is wrong.

    TARGET is the broker's store on this host, HOST:PORT of its listenPort, or HOST:PORT of a name server. Each check
    prints a row with a reason code and the command to type next. The checks cover ports and the hosts that can reach
    them, identity, name servers, replication, disk, clocks, segment sizes, history and file permissions. Nothing is
    changed.
    """
