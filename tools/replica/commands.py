"""`slipstream replica`, as it is typed."""

from __future__ import annotations

import click

from ipc.host_port import host_port
from tools.common.lazy_group import SuggestingGroup
from tools.common.output_form import form
from tools.common.progress import OPTION
from tools.log.options import STORE, store_command

EPILOG = (
    "Exit codes: 0 success; 1 the logs have different histories, or this one is ahead; 2 wrong usage or not a store;"
    " 3 no answer from HOST:PORT; 4 damage"
)
WITH = "The other replica: the directory of its store or of a copy, or HOST:PORT of a running Slipstream broker."


@click.group(cls=SuggestingGroup, context_settings={"help_option_names": ["-h", "--help"]})
def replica() -> None:
    """Compare a store's log with a replica's, or cut it back."""


@replica.command(epilog=EPILOG)
@STORE
@click.option("--with", "other", required=True, metavar="OTHER", help=WITH)
@OPTION
@form("Print one JSON object.")
@store_command("tools.replica.rewind:check", "tools.replica.usage:check")
def check() -> None:
    """Compare STORE's log with OTHER's and name the next step.

    Prints whether both logs have the same history, and their last common record. A log that a broker is writing is
    compared up to its published end. Nothing is changed.
    """


@replica.command(epilog=EPILOG)
@STORE
@click.option("--with", "other", metavar="OTHER", help=WITH)
@click.option(
    "--to",
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="Cut at this log offset, the beginning or end of a record. Default: the last common record's end.",
)
@click.option("--discard", is_flag=True, help="Do not keep a copy of what is removed.")
@click.option("--give-up-newer", is_flag=True, help="Also cut STORE if its epoch, or its master's, is the newer one.")
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be removed.")
@OPTION
@form("Print one JSON object.")
@store_command("tools.replica.rewind:rewind", "tools.replica.usage:rewind")
def rewind() -> None:
    """Cut STORE's log back to its last record in common.

    Cuts log, queues and index back to the last record in common with OTHER, or to OFFSET. No broker may run on STORE.
    The removed part is kept in STORE/slipstream.kept-OFFSET, which `slipstream log cat` can read. The mark that the log
    has diverged is removed, so STORE's broker can follow its master again. Consumers' offsets are kept. The log
    of the newer epoch is cut only with --give-up-newer, because its messages are the valid ones. If the command is
    killed, the next rewind or the next start of STORE's broker finishes it.
    """


@replica.command(epilog=EPILOG)
@STORE
@form("Print one JSON object.")
@store_command("tools.replica.rewind:forget", "tools.replica.usage:forget")
def forget() -> None:
    """Remove the mark that STORE's log has diverged.

    Nothing else is changed. No broker may run on STORE. The slave then connects to its master again, and sets the mark
    again if the compared parts of the logs still differ.
    """


TIMEOUT_SECONDS = 60.0
TIMEOUT = click.option(
    "--timeout",
    type=float,
    default=TIMEOUT_SECONDS,
    metavar="SECONDS",
    help=f"Give up waiting after this many seconds. Default: {TIMEOUT_SECONDS:g}.",
)


def _address(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    """Check an address: a role takes effect at once, and a slave with a wrong address would copy nothing, silently."""
    if text is not None and host_port(text) is None:
        raise click.BadParameter(f"{text!r} is not HOST:PORT with a port from 1 to 65535")
    return text


@click.command(epilog=EPILOG)
@STORE
@click.option("--switch", is_flag=True, help="Make a running Slipstream master step down first; no message is lost.")
@click.option("--force", is_flag=True, help="Promote although the master runs; what it writes from now on is lost.")
@click.option(
    "--master",
    metavar="HOST:PORT",
    callback=_address,
    help="listenPort of the old master. Default: the address that the name servers give.",
)
@TIMEOUT
@form("Print one JSON object.")
@store_command("tools.replica.promote:promote")
def promote() -> None:
    """Make the broker on STORE the master without editing its file.

    The broker continues at the end of its log. It registers at the name servers with id 0 and starts a new epoch, so
    that an old master that comes back knows it has been replaced. The promotion is refused while the master runs, for a
    log that has diverged or is incomplete, and for a master. If no broker runs on STORE, its next start makes it the
    master.
    """


@click.command(epilog=EPILOG)
@STORE
@click.option(
    "--master",
    metavar="HOST:PORT",
    callback=_address,
    help="HA port of the master to follow. Default: the address that the name servers give.",
)
@TIMEOUT
@form("Print one JSON object.")
@store_command("tools.replica.promote:demote")
def demote() -> None:
    """Make the broker on STORE a slave without editing its file.

    This also makes a slave follow another master. If its log has diverged from its master's, the command prints what
    to type next. If no broker runs on STORE, the change takes effect at its next start.
    """
