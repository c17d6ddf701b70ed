"""`slipstream replica`, as it is typed."""

from __future__ import annotations

import click

from ipc.host_port import host_port
from tools.common.lazy_group import SuggestingGroup
from tools.common.output_form import form
from tools.common.progress import OPTION
from tools.log.options import STORE, store_command

EPILOG = (
    "Exit codes: 0 all well; 1 the logs are not one history, or this one is ahead; 2 wrong usage or not a store;"
    " 3 no answer from HOST:PORT; 4 damage"
)
WITH = "Another store of the pair: a directory (a copy, read in place), or HOST:PORT of a running Slipstream broker."


@click.group(cls=SuggestingGroup, context_settings={"help_option_names": ["-h", "--help"]})
def replica() -> None:
    """Compare a store's log with another one of its pair."""


@replica.command(epilog=EPILOG)
@STORE
@click.option("--with", "other", required=True, metavar="OTHER", help=WITH)
@OPTION
@form("One JSON object.")
@store_command("tools.replica.check:check", "tools.replica.usage:check")
def check() -> None:
    """Say whether STORE's log and OTHER's are one history, which record is the last common one, and what to do next.

    A log that a broker is writing is compared up to its published end; nothing is changed.
    """


@replica.command(epilog=EPILOG)
@STORE
@click.option("--with", "other", metavar="OTHER", help=WITH)
@click.option("--to", type=click.IntRange(min=0), metavar="OFFSET", help="Where a record begins or ends, or the log.")
@click.option("--discard", is_flag=True, help="Keep nothing of what goes.")
@click.option("--give-up-newer", is_flag=True, help="Cut STORE also where its epoch is the newer one, or its master's.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@OPTION
@form("One JSON object.")
@store_command("tools.replica.rewind:rewind", "tools.replica.usage:rewind")
def rewind() -> None:
    """Cut STORE's log, with its queues and index, back to OFFSET, or to its last record in common with OTHER.

    No broker may run on STORE. What goes is kept in STORE/slipstream.kept-OFFSET, which `slipstream log cat` reads. The
    note that the log has diverged is removed: STORE's broker may follow its master again. Consumers' offsets stay.
    The log of the newer epoch is not cut without --give-up-newer: its messages are the ones that count.
    Killed at any moment, the next rewind or the next start of STORE's broker finishes it.
    """


@replica.command(epilog=EPILOG)
@STORE
@form("One JSON object.")
@store_command("tools.replica.rewind:forget", "tools.replica.usage:forget")
def forget() -> None:
    """Remove the note that STORE's log has diverged, and change nothing else; no broker may run on STORE.

    A slave then asks its master again, and notes it again if the logs still differ where they are compared.
    """


TIMEOUT = click.option(
    "--timeout", type=float, default=60.0, show_default=True, help="Seconds until it is given up to wait."
)


def _address(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    """Check an option HOST:PORT: a role is noted at once, and a slave without a master would silently copy nothing."""
    if text is not None and host_port(text) is None:
        raise click.BadParameter(f"{text!r} is not HOST:PORT with a port from 1 to 65535")
    return text


@click.command(epilog=EPILOG)
@STORE
@click.option("--switch", is_flag=True, help="Let a living Slipstream master step down first: no message is lost.")
@click.option("--force", is_flag=True, help="Also beside a master that lives: what it writes from now on is lost.")
@click.option(
    "--master", metavar="HOST:PORT", callback=_address,
    help="The old master's listenPort, where no name server tells it.",
)  # fmt: skip
@TIMEOUT
@form("One JSON object.")
@store_command("tools.replica.promote:promote")
def promote() -> None:
    """Make the broker on STORE the master, without editing its file; it goes on where its log ends.

    It registers at the name servers with id 0 and begins a new epoch, by which an old master that comes back knows that
    it is none. Refused while the master lives, for a log that has diverged or is not whole, and for a master. Without a
    broker on STORE, its next start is a promotion.
    """


@click.command(epilog=EPILOG)
@STORE
@click.option(
    "--master", metavar="HOST:PORT", callback=_address,
    help="The HA port that it follows; else the name servers tell it.",
)  # fmt: skip
@TIMEOUT
@form("One JSON object.")
@store_command("tools.replica.promote:demote")
def demote() -> None:
    """Make the broker on STORE a slave, without editing its file; or have a slave follow another master.

    Where its log has parted from its master's, the command to type is printed. Without a broker on STORE, it counts
    from its next start on.
    """
