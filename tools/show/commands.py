"""What looks at a running broker: `slipstream status`, `counters`, `stats`, `ha`, as they are typed."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from tools.common.completion import groups as named_groups
from tools.common.exit_codes import EPILOG, WELL_OR_NOT
from tools.common.given_path import GivenPath
from tools.common.lazy_group import SuggestingGroup, done_by
from tools.common.output_form import form

STORE = click.argument("store", type=GivenPath(file_okay=False))
WATCH = click.option("--watch", is_flag=True, help="Repeat every second until Ctrl-C or until the broker ends.")


def shown_by(where: str) -> Callable[[Callable[[], None]], Callable[..., Any]]:
    """Do what `done_by` does, but first raise NoBroker if no broker runs on `store`, before the view is loaded."""

    def declared(declaration: Callable[[], None]) -> Callable[..., Any]:
        show = done_by(where)(declaration)

        @wraps(declaration)
        def run(store: str, **arguments: Any) -> Any:
            from store.reading.extent import require_running

            require_running(store)
            return show(store=store, **arguments)

        return run

    return declared


@click.command(epilog=EPILOG)
@STORE
@WATCH
@click.option(
    "--ready",
    "question",
    flag_value="ready",
    help="Exit with 1 only if the broker does not serve, as /readyz does.",
)
@click.option(
    "--alive",
    "question",
    flag_value="alive",
    help="Exit with 1 only if the broker needs a restart or a new disk, as /healthz does.",
)
@form("Print one JSON object.")
@shown_by("tools.show.status:show")
def status() -> None:
    """Show what is wrong, replicas, rates and processes of a broker.

    STORE is the store of a running broker on this host.
    """


@click.command()
@STORE
@WATCH
@form("Print one JSON object: label to kind, owner and value.")
@shown_by("tools.show.counters:show")
def counters() -> None:
    """Show all counters of the broker that runs on STORE.

    Reads shared memory only; no process of the broker is interrupted.
    """


@click.command()
@STORE
@WATCH
@form("Print one JSON object, which includes RocketMQ's runtime names.")
@shown_by("tools.show.stats:show")
def stats() -> None:
    """Show put counts, rates, latencies and topics of the broker that runs on STORE."""


@click.command()
@STORE
@WATCH
@form("Print one JSON object.")
@shown_by("tools.show.clients:clients")
def clients() -> None:
    """Show the clients connected to the broker that runs on STORE, with their groups."""


@click.command()
@STORE
@click.option(
    "-g",
    "--group",
    shell_complete=named_groups,
    metavar="GROUP",
    help="Show only this group, with its members and queues. Default: all groups.",
)
@WATCH
@form("Print one JSON object, with every queue.")
@shown_by("tools.show.clients:groups")
def groups() -> None:
    """Show the consumer groups of the broker that runs on STORE: members, queues, offsets, lag."""


@click.group(cls=SuggestingGroup, context_settings={"help_option_names": ["-h", "--help"]})
def ha() -> None:
    """Explain acknowledgements and show the state of each replica."""


@ha.command()
@click.argument("target", type=GivenPath())
@form("Print one JSON object.")
@done_by("tools.show.ha_explanation:explain")
def explain() -> None:
    """Explain what each answer to a put means.

    TARGET is the store of a running broker, or a broker.properties file.
    """


@ha.command("status", epilog=f"{WELL_OR_NOT}.")
@STORE
@WATCH
@form("Print one JSON object.")
@shown_by("tools.show.ha:status")
def ha_status() -> None:
    """Show state, lag and rate of each replica.

    STORE is the store of a running broker. Each replica has a reason code, its time to catch up and its rejected
    reports.
    """
