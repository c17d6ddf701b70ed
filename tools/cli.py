"""The command `slipstream`: finds the command asked for, runs it, turns errors into one line and an exit code.

Exit codes: 0 all well; 1 a check failed, or something was found; 2 wrong usage or configuration; 3 no broker serves;
4 input, output or the store failed; 130 interrupted.
A command's module is imported when it is called, so that `--help` is quick.
"""

from __future__ import annotations

import errno
import os
import select
import sys
from typing import Any

import click

from ipc.machine import require_known
from ipc.module_names import is_ours, version_here
from ipc.process import hold_standard_descriptors
from tools.common.exit_codes import ExitCode
from tools.common.lazy_group import NAME_MAX, LazyGroup, close_to
from tools.common.output_form import lose_no_letter

EXIT_CODES = {  # by an error's code; all others are `STORE`
    "CONFIG": ExitCode.USAGE,
    "EXTRA_MISSING": ExitCode.USAGE,
    "TLS": ExitCode.USAGE,
    "JAVA_MISSING": ExitCode.USAGE,
    "MESSAGE_ILLEGAL": ExitCode.USAGE,
    "INVALID_OPTION": ExitCode.USAGE,
    "PATTERN_TOO_SLOW": ExitCode.USAGE,
    "ADMIN": ExitCode.USAGE,
    "COMPILER_OFF": ExitCode.USAGE,
    "COMPILE_UNKNOWN": ExitCode.USAGE,
    "CLIENT": ExitCode.USAGE,
    "BROKER_GONE": ExitCode.NO_BROKER,
    "NOT_A_STORE": ExitCode.USAGE,
    "WEB": ExitCode.USAGE,
    "FLIGHT_REFUSED": ExitCode.USAGE,
    "LAKE_OTHER_LOG": ExitCode.USAGE,
    "LAKE_NOT_OURS": ExitCode.USAGE,
    "LAKE_SCHEMA": ExitCode.USAGE,
    "OFFSET_OUT_OF_RANGE": ExitCode.USAGE,
    "SEGMENT_SIZE_MISMATCH": ExitCode.USAGE,
    "SNAPSHOT_UNKNOWN": ExitCode.USAGE,
    "SNAPSHOT_REFUSED": ExitCode.USAGE,
    "NO_BROKER": ExitCode.NO_BROKER,
    "STARTING": ExitCode.NO_BROKER,
    "NOT_IN_TIME": ExitCode.FOUND,
    "NO_LISTENER": ExitCode.FOUND,
    "BROKER_OUT_OF_REACH": ExitCode.NO_BROKER,
    "PEER_UNREACHABLE": ExitCode.NO_BROKER,
    "PEER_IS_NO_SLIPSTREAM": ExitCode.USAGE,
    "ROLE_REFUSED": ExitCode.FOUND,
    "NEWER_EPOCH": ExitCode.FOUND,
    "REGION_MISSING": ExitCode.NO_BROKER,
}
COMPLETE = "_SLIPSTREAM_COMPLETE"  # of the environment, set where a shell asks
REMEDIES = {  # by the error of the system
    errno.ENOENT: "check the path",
    errno.EACCES: "check its owner and permissions",
    errno.EPERM: "check its owner and permissions",
    errno.ENOTDIR: "a part of the path is not a directory",
    errno.EISDIR: "give a file, not a directory",
    errno.ENOSPC: "free some disk space",
    errno.EROFS: "the file system is mounted read-only",
    errno.EIO: "check the disk",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}
SECTIONS = {  # heading: name: where it is, what it does
    "Run a broker": {
        "init": ("tools.run.init:init", "Write the files of a new broker: properties and systemd unit."),
        "broker": ("tools.run.broker:broker", "Run a broker until it is stopped."),
        "wait": ("tools.run.serving_commands:wait", "Wait until the broker on a store serves clients."),
        "stop": ("tools.run.serving_commands:stop", "Stop the broker on a store and wait until it has ended."),
        "namesrv": ("tools.run.namesrv_command:namesrv", "Run a name server until it is stopped."),
        "run": ("tools.demo.command:run", "Demonstrate replication and a Spark query on this machine."),
    },
    "Look": {
        "status": ("tools.show.commands:status", "Show what is wrong, replicas, rates and processes of a broker."),
        "top": ("tools.top.command:top", "Watch a broker live in the terminal."),
        "web": ("tools.web.command:web", "Serve a console for stores and brokers to a browser."),
        "stats": ("tools.show.commands:stats", "Show put counts, rates, latencies and topics of a broker."),
        "counters": ("tools.show.commands:counters", "Show all counters of a running broker."),
        "doctor": ("tools.doctor.commands:doctor", "Check a running broker from outside and name what is wrong."),
    },
    "Messages": {
        "produce": ("tools.run.produce:produce", "Append lines as messages to the broker on a local store."),
        "send": ("tools.run.remoting_commands:send", "Send lines as messages to any RocketMQ broker."),
        "consume": ("tools.run.remoting_commands:consume", "Consume a topic as a member of a consumer group."),
        "log": ("tools.log.commands:log", "Read, search, export, verify and repair the log of a store."),
    },
    "Repair": {
        "replica": ("tools.replica.commands:replica", "Compare a store's log with a replica's, or cut it back."),
        "debug": ("tools.debug.commands:debug", "Write one file of facts about a broker for a bug report."),
    },
    "Replicate": {
        "ha": ("tools.show.commands:ha", "Explain acknowledgements and show the state of each replica."),
        "promote": ("tools.replica.commands:promote", "Make a slave the master without editing its file."),
        "demote": ("tools.replica.commands:demote", "Make a broker a slave without editing its file."),
    },
    "Data": {
        "flight": ("tools.run.flight_command:flight", "Serve a store's messages over Arrow Flight."),
        "lake": ("tools.run.lake_command:lake", "Load messages into an Iceberg or Delta table, each exactly once."),
        "snapshot": ("tools.log.snapshot_command:snapshot", "Name the current state of a store for repeatable reads."),
    },
    "Clients": {
        "clients": ("tools.show.commands:clients", "Show the clients connected to a running broker."),
        "groups": ("tools.show.commands:groups", "Show consumer groups: members, queues, offsets, lag."),
        "admin": ("tools.admin.commands:admin", "Query and change brokers and name servers, as mqadmin does."),
    },
    "Maintain": {
        "warm": ("tools.kernels.warm:warm", "Compile all kernels now, so that the first start is quick."),
        "completion": ("tools.run.completion:completion", "Print the script that completes commands in your shell."),
    },
}
COMMANDS = {name: each for section in SECTIONS.values() for name, each in section.items()}


def say_version(context: click.Context, _parameter: click.Parameter, is_asked: bool) -> None:
    """Print the version and exit."""
    if is_asked:
        click.echo(f"slipstream {version_here()}")
        context.exit()


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"Exit codes: 0 all well; {ExitCode.FOUND} a check failed or something was found; {ExitCode.USAGE} wrong "
    f"usage or configuration; {ExitCode.NO_BROKER} no broker serves; {ExitCode.STORE} input, output or the store "
    f"failed; {ExitCode.INTERRUPTED} interrupted",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=say_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """A RocketMQ-compatible replicated commit log."""


def report(error: Exception) -> int:
    """Print an error of Slipstream or of the system as one line; return its exit code. Raise all others: bugs."""
    code, text = getattr(error, "code", None), str(error)
    if isinstance(error, OSError) and type(error).__module__ == "builtins":
        code, text = "IO", _system_error_line(error)
    elif not isinstance(code, str) or not is_ours(type(error).__module__):
        raise error
    say(code, text)
    return EXIT_CODES.get(code, ExitCode.STORE)


def say(code: str, text: str) -> None:
    """Print an error as one line to standard error."""
    click.echo(f"slipstream: {code}: {' '.join(text.split())}", err=True)


def _system_error_line(error: OSError) -> str:
    """Return the path, the reason and the remedy of a system error."""
    what = f"{error.filename}: " if error.filename is not None else ""
    remedy = REMEDIES.get(error.errno or 0)
    return f"{what}{error.strerror or error}" + (f"; {remedy}" if remedy else "")


def _usage_line(wrong: click.ClickException) -> str:
    """Return what is wrong with the arguments, and which `--help` to read."""
    context = wrong.ctx if isinstance(wrong, click.UsageError) else None
    path = context.command_path if context is not None else "slipstream"
    message = wrong.format_message()
    if isinstance(wrong, click.NoSuchOption) and context is not None:
        names = [name for param in context.command.get_params(context) for name in (*param.opts, *param.secondary_opts)]
        options = [name for name in names if name[:1] == "-"]
        message = f"No such option {wrong.option_name[:NAME_MAX]!r}{close_to(wrong.option_name, options)}"
    return f"{message.rstrip('.')}; see `{path} --help`"


def _has_reader() -> bool:
    """Whether anybody still reads our output: a pipe whose other end is closed says so."""
    poller = select.poll()
    poller.register(sys.stdout.fileno(), 0)
    return not any(event & select.POLLERR for _fd, event in poller.poll(0))


def _invoke(arguments: list[str]) -> Any:
    """Run the command as click's `main` does, but let interrupts and broken pipes reach the caller."""
    try:
        if asked := os.environ.get(COMPLETE):
            return _complete(asked)
        with cli.make_context("slipstream", list(arguments)) as context:
            return cli.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code


def _complete(asked: str) -> int:
    """Answer the shell whose script (`slipstream completion`) asks what may be typed."""
    from click.shell_completion import shell_complete

    return shell_complete(cli, {}, "slipstream", COMPLETE, asked)


def run_command(arguments: list[str] | None = None) -> int:
    """Run one command line; its exit code."""
    try:
        require_known()
        result = _invoke(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()  # here, where an error can still be reported
    except click.exceptions.NoArgsIsHelpError as asked:  # a group's name alone
        click.echo(asked.format_message(), err=True)
        return ExitCode.USAGE
    except click.ClickException as wrong:
        say("USAGE", _usage_line(wrong))
        return ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        say("INTERRUPTED", "interrupted by Ctrl-C; run the command again")
        return ExitCode.INTERRUPTED
    except BrokenPipeError as error:
        if _has_reader():
            return report(error)  # not of our output: some connection's
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0  # the reader of our output has seen enough
    except OSError as error:
        if error.errno == errno.ENOSPC:  # what did not fit would be tried again at the exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return report(error)
    except Exception as error:
        return report(error)
    return result if isinstance(result, int) else 0


def main() -> None:
    """Run the command line: entry point of the console script."""
    open_standard_streams()
    sys.exit(run_command())


def open_standard_streams() -> None:
    """Have descriptors 0 to 2, and Python's streams on them, whatever our caller closed; no letter ends a command."""
    hold_standard_descriptors()
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(fd, "w" if fd else "r", encoding="utf-8", closefd=False))
    lose_no_letter()


if __name__ == "__main__":
    main()
