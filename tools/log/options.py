"""What the commands of `slipstream log` share: kinds of arguments, their exit codes, errors in one line."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from tools.common.given_path import GivenPath
from tools.common.lazy_group import done_by

STORE = click.argument("store", type=GivenPath(path_type=Path))


class StoreOrServers(GivenPath):
    """A directory, or addresses of Flight servers as text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from spark_bridge.options.flights import is_flight  # most commands know no servers

        return value if isinstance(value, str) and is_flight(value) else super().convert(value, param, ctx)


STORE_OR_SERVERS = click.argument("store", type=StoreOrServers(path_type=Path))
REGEX_CHARACTERS_MAX = 10_000
EPILOG = (
    "Exit codes: 0 success; 1 verify or diff found something, or find found nothing; 2 wrong usage or not a store;"
    " 3 no broker; 4 damage"
)


class QueueName(click.ParamType[tuple[str, int]]):
    """A queue as an argument: TOPIC:ID."""

    name = "topic:id"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        topic, _, number = value.rpartition(":")
        if not topic or not (number.isascii() and number.isdecimal()) or "/" in topic or topic in (".", ".."):
            self.fail(f"{value!r} is not TOPIC:ID, for example orders:0", param, ctx)
        return topic, int(number)


class OptionValue(click.ParamType[tuple[str, str]]):
    """An option as an argument: NAME=VALUE."""

    name = "name=value"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        option, equals, text = value.partition("=")
        if not option or not equals:
            self.fail(f"{value!r} is not NAME=VALUE, for example minPartitions=8", param, ctx)
        return option, text


class Regex(click.ParamType[re.Pattern[str]]):
    """A regular expression of Python's."""

    name = "regex"

    def convert(
        self, value: str | re.Pattern[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> re.Pattern[str]:
        if isinstance(value, re.Pattern):
            return value
        if len(value) > REGEX_CHARACTERS_MAX:
            self.fail(f"the expression is longer than {REGEX_CHARACTERS_MAX} characters", param, ctx)
        try:
            return re.compile(value)
        except (re.error, RecursionError, OverflowError) as wrong:
            self.fail(f"{value!r} is not a regular expression: {wrong}", param, ctx)


class NotReadable(click.UsageError):
    """The arguments do not go together, or name something that is no place in a store."""


def _require_stores(arguments: dict[str, Any], *, or_file: bool) -> None:
    """Check that arguments are stores before the work's modules are loaded. Raises NotAStore."""
    from store.files.directory import store_directory

    for name in ("store", "store_a", "store_b"):
        place = arguments.get(name)
        if isinstance(place, Path) and not (or_file and place.is_file()):
            store_directory(place)


def store_command(
    where: str, checked_by: str | None = None, *, or_file: bool = False
) -> Callable[[Callable[[], None]], Callable[..., Any]]:
    """A command on a store, done by the function that `where` names, which returns its exit code.

    `checked_by` is as with `done_by`. With `or_file` it takes a file, too.
    """

    def declared(declaration: Callable[[], None]) -> Callable[..., Any]:
        work = done_by(where, checked_by)(declaration)

        @wraps(declaration)
        def run(**arguments: Any) -> Any:
            _require_stores(arguments, or_file=or_file)
            return work(**arguments)

        return run

    return declared
