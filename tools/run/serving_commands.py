"""`slipstream wait`, `slipstream stop` and `--detach` of other servers than brokers, as they are typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from tools.common.given_path import GivenPath
from tools.common.lazy_group import done_by
from tools.common.numbers import number

STORE = click.argument("store", type=GivenPath(file_okay=False))
START_SECONDS = 300.0
WANTED = click.Choice(["serves", "ready", "well"])
DETACHING = ("detach", "log_file", "pid_file")


class ServerCommand(click.Command):
    """A command that serves until it is stopped, with `--detach`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(["--detach"], is_flag=True, help="Start in the background; return once it serves."),
            click.Option(
                ["--log-file"],
                type=GivenPath(path_type=Path, dir_okay=False),
                metavar="FILE",
                help=f"With --detach: append its output to this file. Default: {self.name}.log in the current folder.",
            ),
            click.Option(
                ["--pid-file"],
                type=GivenPath(path_type=Path, dir_okay=False),
                metavar="FILE",
                help="With --detach: write its process number to this file; stop it with `kill`. Default: no file.",
            ),
        ]

    def invoke(self, ctx: click.Context) -> Any:
        """Run it here, or start it in the background."""
        is_detached, log, pid_file = (ctx.params.pop(name) for name in DETACHING)
        if is_detached:
            from tools.run.detached import start_server

            command = [str(self.name), *_typed(ctx)]
            return start_server(command, log or Path(f"{self.name}.log"), pid_file, START_SECONDS)
        if log or pid_file:
            raise click.UsageError("--log-file and --pid-file need --detach")
        return super().invoke(ctx)


def _typed(ctx: click.Context) -> list[str]:
    """The options and arguments that were typed, but for those of `--detach`."""
    options: list[str] = []
    arguments: list[str] = []
    for one in ctx.command.params:
        if one.name not in ctx.params or ctx.get_parameter_source(one.name) is not ParameterSource.COMMANDLINE:
            continue
        value = ctx.params[one.name]
        if isinstance(one, click.Option) and one.is_flag:
            options.append(one.opts[0])
        elif isinstance(one, click.Option):
            options += [word for each in (value if one.multiple else (value,)) for word in (one.opts[0], str(each))]
        else:
            arguments.append(str(value))
    return [*options, "--", *arguments]


@click.command(epilog="Exit codes: 0 success; 1 not in time, or a port is taken; 3 no broker serves in time")
@STORE
@click.option(
    "--for",
    "wanted",
    type=WANTED,
    default="serves",
    help="What to wait for. serves: clients are served; ready: as /readyz, a slave also follows its master; "
    "well: nothing is wrong. Default: serves.",
)
@number("--timeout", click.FloatRange(0), START_SECONDS, "SECONDS", "Give up after this many seconds.")
@done_by("tools.run.serving:wait")
def wait() -> None:
    """Wait until the broker on STORE serves clients."""


@click.command(epilog="Exit codes: 0 the broker has ended; 1 not in time; 3 no broker runs there")
@STORE
@number(
    "--timeout",
    click.FloatRange(0),
    START_SECONDS,
    "SECONDS",
    "Give up waiting after this many seconds; the broker continues to stop.",
)
@done_by("tools.run.serving:stop")
def stop() -> None:
    """Stop the broker on STORE and wait until it has ended."""
