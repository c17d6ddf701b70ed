"""Commands whose work is imported when it is called, so that `--help`, wrong usage and every other one are quick."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import click


def attribute_of(where: str) -> Any:
    """What "module:attribute" names, imported now."""
    module, _colon, attribute = where.partition(":")
    return getattr(importlib.import_module(module), attribute)


def done_by(where: str) -> Callable[[Callable[[], None]], Callable[..., Any]]:
    """A command's declaration, made into a command: its arguments go to the function that `where` names."""

    def declared(declaration: Callable[[], None]) -> Callable[..., Any]:
        @wraps(declaration)
        def run(**arguments: Any) -> Any:
            return attribute_of(where)(**arguments)

        return run

    return declared


class LazyGroup(click.Group):
    """Commands added to it, and those of `elsewhere`: name -> ("module:attribute", what it does)."""

    def __init__(self, *args: Any, elsewhere: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._elsewhere = elsewhere

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._elsewhere})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._elsewhere:
            return super().get_command(ctx, cmd_name)
        command: click.Command = attribute_of(self._elsewhere[cmd_name][0])
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        summaries = {name: what for name, (_, what) in self._elsewhere.items()}
        own = {name: command.get_short_help_str(80) for name, command in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted({**summaries, **own}.items()))
