"""The command `slipstream`: finds the command asked for, runs it, turns errors into one line and an exit code.

Exit codes: 0 all well; 1 a check failed, or something was found; 2 wrong usage or configuration; 3 no broker there;
4 input, output or the store failed; 130 interrupted.
A command's module is imported when it is called, so that `--help` is quick.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from tools.lazy_group import LazyGroup

FOUND, USAGE, NO_BROKER, STORE, INTERRUPTED = 1, 2, 3, 4, 130
OUR_PACKAGES = ("engine", "ipc", "spark_bridge", "store", "tools")
EXIT_CODES = {  # by an error's code; all others are STORE
    "CONFIG": USAGE,
    "JAVA_MISSING": USAGE,
    "MESSAGE_ILLEGAL": USAGE,
    "INVALID_OPTION": USAGE,
    "ADMIN": USAGE,
    "BROKER_GONE": NO_BROKER,
    "NOT_A_STORE": USAGE,
    "NO_BROKER": NO_BROKER,
    "PEER_UNREACHABLE": NO_BROKER,
    "REGION_MISSING": NO_BROKER,
}
COMMANDS = {  # name: where it is, what it does
    "admin": ("tools.admin_commands:admin", "Ask and change name servers and brokers, with mqadmin's names and flags."),
    "broker": ("tools.broker_command:broker", "Run a broker from its properties file until it is stopped."),
    "counters": ("tools.counters_view:counters", "Show all counters of a running broker."),
    "ha": ("tools.ha_commands:ha", "Explain what an acknowledgement means; show how each replica is doing."),
    "log": ("tools.log_commands:log", "Look into a store's commit log and queues, with or without a broker."),
    "namesrv": ("tools.namesrv_command:namesrv", "Run a name server until it is stopped."),
    "produce": ("tools.produce:produce", "Append lines of files, or of standard input, as messages."),
    "run": ("tools.demo:run", "Replicate real input between two brokers and query it with Spark."),
    "stats": ("tools.stats_view:stats", "Show what was put: counts, rates, latencies, topics."),
    "status": ("tools.status_view:status", "Show a broker's role, cursors, connections and processes."),
}


@click.group(
    cls=LazyGroup,
    elsewhere=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"Exit codes: 0 all well; {FOUND} a check failed or something was found; {USAGE} wrong usage or "
    f"configuration; {NO_BROKER} no broker there; {STORE} input, output or the store failed; {INTERRUPTED} interrupted",
)
@click.version_option(package_name="slipstream-log", prog_name="slipstream", message="%(prog)s %(version)s")
def cli() -> None:
    """A RocketMQ-compatible replicated commit log."""


def report(error: Exception) -> int:
    """Print one of our errors, or the system's, as one line; its exit code. Others are bugs, and raised again."""
    code = getattr(error, "code", None)
    if isinstance(error, OSError) and type(error).__module__ == "builtins":
        code = "IO"
    elif not isinstance(code, str) or type(error).__module__.partition(".")[0] not in OUR_PACKAGES:
        raise error
    click.echo(f"slipstream: {code}: {' '.join(str(error).split())}", err=True)
    return EXIT_CODES.get(code, STORE)


def run_command(arguments: list[str] | None = None) -> int:
    """Run one command line; its exit code."""
    try:
        result: Any = cli.main(arguments, prog_name="slipstream", standalone_mode=False)
    except click.ClickException as wrong:
        wrong.show()
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        click.echo("slipstream: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return report(error)
    return result if isinstance(result, int) else 0


def main() -> None:
    """The console script."""
    sys.exit(run_command())


if __name__ == "__main__":
    main()
