"""`slipstream doctor`, as it is typed."""

from __future__ import annotations

import click

from tools.common.lazy_group import done_by
from tools.common.output_form import form
from tools.common.tls import TLS_CONFIG


@click.command(epilog="Exit codes: 0 nothing is wrong; 1 something is; 2 TARGET is neither a store nor an address.")
@click.argument("target")
@click.option("-n", "--namesrvAddr", "name_servers", default="", help="host:port;... beside those of its file.")
@click.option("--strict", is_flag=True, help="What is left open to strangers is wrong, too.")
@click.option("--timeout", type=click.FloatRange(0.1, 600), default=3.0, show_default=True, help="Seconds a question.")
@click.option("--tls-config", envvar=TLS_CONFIG, help="TLS, with this tls.properties file of RocketMQ.")
@form("One JSON object: ok, rows with check, level, reason, what, next.")
@done_by("tools.doctor.doctor:examine")
def doctor() -> None:
    """Look at a running broker from outside: TARGET is its store on this host, or host:port of its listenPort,
    or of a name server.

    Ports and who can reach them, identity and name servers, replication, disk, clocks, segment sizes, history held,
    rights of files: a row each, with a reason code and the command to type next. Nothing is changed.
    """
