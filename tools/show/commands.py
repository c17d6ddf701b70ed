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
WATCH = click.option("--watch", is_flag=True, help="Again each second, until Ctrl-C or until the broker has ended.")


def shown_by(where: str) -> Callable[[Callable[[], None]], Callable[..., Any]]:
    """Make a command like `done_by`, for a store's running broker; without one, it fails before the view is loaded."""

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
@click.option("--ready", "question", flag_value="ready", help="Exit with 1 only while it does not serve, as /readyz.")
@click.option(
    "--alive", "question", flag_value="alive",
    help="Exit with 1 only when a restart or a new disk is needed, as /healthz.",
)  # fmt: skip
@form("One JSON object.")
@shown_by("tools.show.status:show")
def status() -> None:
    """Show the broker that runs on STORE: what is wrong, lag of its replicas, put rates, processes."""


@click.command()
@STORE
@WATCH
@form("One JSON object: label to kind, owner and value.")
@shown_by("tools.show.counters:show")
def counters() -> None:
    """Show all counters of the broker that runs on STORE; no process of it is asked or disturbed."""


@click.command()
@STORE
@WATCH
@form("One JSON object, with RocketMQ's runtime names in it.")
@shown_by("tools.show.stats:show")
def stats() -> None:
    """Show what was put into the broker that runs on STORE: counts, rates, latencies, topics."""


@click.command()
@STORE
@WATCH
@form("One JSON object.")
@shown_by("tools.show.clients:clients")
def clients() -> None:
    """Show who is connected to the broker that runs on STORE, and for which groups."""


@click.command()
@STORE
@click.option("-g", "--group", shell_complete=named_groups, help="Only this one, with its members and queues.")
@WATCH
@form("One JSON object, with every queue.")
@shown_by("tools.show.clients:groups")
def groups() -> None:
    """Show the consumer groups of the broker that runs on STORE: members, queues, offsets, lag."""


@click.group(cls=SuggestingGroup, context_settings={"help_option_names": ["-h", "--help"]})
def ha() -> None:
    """Show replication: what an acknowledgement means, how each replica is doing."""


@ha.command()
@click.argument("target", type=GivenPath())
@form("One JSON object.")
@done_by("tools.show.ha_explanation:explain")
def explain() -> None:
    """Say what each answer to a put means: of the broker that runs on the store TARGET, or of the file TARGET."""


@ha.command("status", epilog=f"{WELL_OR_NOT}.")
@STORE
@WATCH
@form("One JSON object.")
@shown_by("tools.show.ha:status")
def ha_status() -> None:
    """Show each replica of the broker on STORE: state, reason code, lag, rate, time to catch up, rejected reports."""
