"""What the commands of `slipstream log` share: the store they look into, their exit codes, errors in one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec

import click

from store.errors import NotAStore, OffsetOutOfRange, SegmentSizeMismatch

FOUND, USAGE = 1, 2
Parameters = ParamSpec("Parameters")
STORE = click.argument("store", type=click.Path(path_type=Path))
EPILOG = (
    "Exit codes: 0 all well; 1 verify or diff found something, find found nothing; 2 wrong usage or not a store;"
    " 3 no broker; 4 damage"
)


class NotReadable(click.ClickException):
    """The arguments name something that is no store, or no place in one."""

    exit_code = USAGE


def store_command(command: Callable[Parameters, int]) -> Callable[Parameters, None]:
    """Ends a command with its exit code; what is wrong with its arguments becomes one line."""

    @wraps(command)
    def run(*arguments: Parameters.args, **options: Parameters.kwargs) -> None:
        try:
            code = command(*arguments, **options)
            sys.stdout.flush()  # here, so that a reader that has gone is noticed while we can still be quiet about it
        except (NotAStore, OffsetOutOfRange, SegmentSizeMismatch) as error:
            raise NotReadable(f"{error.code}: {' '.join(str(error).split())}") from error
        except BrokenPipeError:  # `| head` has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        click.get_current_context().exit(code)

    return run
