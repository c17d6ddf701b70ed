"""The command `slipstream`: finds the command asked for, runs it, turns errors into one line and an exit code.

Exit codes: 0 all well; 1 a check failed, or something was found; 2 wrong usage or configuration; 3 no broker there;
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
    errno.ENOENT: "look at the path",
    errno.EACCES: "look at its owner and rights",
    errno.EPERM: "look at its owner and rights",
    errno.ENOTDIR: "a part of the path is no directory",
    errno.EISDIR: "name a file",
    errno.ENOSPC: "make room",
    errno.EROFS: "the file system is mounted read-only",
    errno.EIO: "look at the disk",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}
COMMANDS = {  # name: where it is, what it does
    "admin": ("tools.admin.commands:admin", "Ask and change name servers and brokers, with mqadmin's names and flags."),
    "broker": ("tools.run.broker:broker", "Run a broker from its properties file until it is stopped."),
    "clients": ("tools.show.commands:clients", "Show who is connected to a running broker."),
    "completion": ("tools.run.completion:completion", "Print the script with which bash, zsh or fish complete."),
    "consume": ("tools.run.remoting_commands:consume", "Consume a topic over remoting, as a member of a group."),
    "counters": ("tools.show.commands:counters", "Show all counters of a running broker."),
    "debug": ("tools.debug.commands:debug", "Collect what a maintainer would ask for: one file, without bodies."),
    "demote": ("tools.replica.commands:demote", "Make a broker a slave, without editing its file."),
    "doctor": ("tools.doctor.commands:doctor", "Look at a running broker from outside: what is wrong, what is open."),
    "flight": ("tools.run.flight_command:flight", "Serve a store's messages as Arrow Flight, to hosts without one."),
    "groups": ("tools.show.commands:groups", "Show consumer groups: members, queues, offsets, lag."),
    "ha": ("tools.show.commands:ha", "Explain what an acknowledgement means; show how each replica is doing."),
    "init": ("tools.run.init:init", "Write the properties file of a new broker, and the unit of a service."),
    "lake": ("tools.run.lake_command:lake", "Load a store's messages into a table of Iceberg or Delta, exactly once."),
    "log": ("tools.log.commands:log", "Look into a store's commit log and queues, with or without a broker."),
    "namesrv": ("tools.run.namesrv_command:namesrv", "Run a name server until it is stopped."),
    "produce": ("tools.run.produce:produce", "Append lines of files, or of standard input, as messages."),
    "promote": ("tools.replica.commands:promote", "Make a slave the master, without editing its file."),
    "replica": ("tools.replica.commands:replica", "Compare a store's log with another one of its pair."),
    "run": ("tools.demo.command:run", "Replicate real input between two brokers and query it with Spark."),
    "send": ("tools.run.remoting_commands:send", "Send lines as messages over remoting, to any RocketMQ broker."),
    "snapshot": ("tools.log.snapshot_command:snapshot", "Name the state of a store, so that reads of it agree."),
    "stats": ("tools.show.commands:stats", "Show what was put: counts, rates, latencies, topics."),
    "stop": ("tools.run.serving_commands:stop", "Stop the broker on a store in order, and wait for its end."),
    "status": ("tools.show.commands:status", "Show a broker's role, cursors, connections and processes."),
    "top": ("tools.top.command:top", "Watch a broker live: pipeline, replicas, topics, producers, groups, roles."),
    "wait": ("tools.run.serving_commands:wait", "Wait until the broker on a store serves."),
    "web": ("tools.web.command:web", "Serve a console for stores and brokers, for a browser on this host."),
    "warm": ("tools.run.warm:warm", "Compile all kernels now, so that no first start has to."),
}


def say_version(context: click.Context, _parameter: click.Parameter, is_asked: bool) -> None:
    """Print the version, and end."""
    if is_asked:
        click.echo(f"slipstream {version_here()}")
        context.exit()


@click.group(
    cls=LazyGroup,
    elsewhere=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"Exit codes: 0 all well; {ExitCode.FOUND} a check failed or something was found; {ExitCode.USAGE} wrong "
    f"usage or configuration; {ExitCode.NO_BROKER} no broker there; {ExitCode.STORE} input, output or the store "
    f"failed; {ExitCode.INTERRUPTED} interrupted",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=say_version,
    help="Show the version and exit.",
)  # fmt: skip
def cli() -> None:
    """A RocketMQ-compatible replicated commit log."""


def report(error: Exception) -> int:
    """Print one of our errors, or the system's, as one line; its exit code. Others are bugs, and raised again."""
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
    """What, why, and what to do, of an error of the system."""
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
        sys.stdout.flush()  # here, where a failure can still be reported
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
