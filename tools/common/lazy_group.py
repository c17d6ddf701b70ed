"""Commands whose work is imported when it is called, so that `--help`, wrong usage and every other one are quick."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from ipc.lazy_names import uncollected
from ipc.module_names import named

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

NAME_MAX = 80  # characters of what was typed that an error repeats, or compares
SUMMARY_MAX = 200  # characters: click never shortens a first sentence of ours
Sections = Mapping[str, Mapping[str, tuple[str, str]]]


def attribute_of(where: str) -> Any:
    """Return what "module:attribute" names, imported now; the module by its name in a checkout."""
    module, _colon, attribute = where.partition(":")
    with uncollected():
        return getattr(importlib.import_module(named(module)), attribute)


def done_by(where: str, checked_by: str | None = None) -> Callable[[Callable[[], None]], Callable[..., Any]]:
    """Make a command of its declaration: its arguments go to the function that `where` names.

    `checked_by` names one that is called with them before: it raises before the work's module is loaded.
    """

    def declared(declaration: Callable[[], None]) -> Callable[..., Any]:
        @wraps(declaration)
        def run(**arguments: Any) -> Any:
            if checked_by is not None:
                attribute_of(checked_by)(**arguments)
            return attribute_of(where)(**arguments)

        return run

    return declared


def close_to(wrong: str, names: Iterable[str]) -> str:
    """` (did you mean ...?)` of those names that look alike, nothing where none does."""
    from difflib import get_close_matches  # for errors alone

    by_lower = {name.lower(): name for name in sorted(names)}
    typed = wrong.lower()[:NAME_MAX]
    nearest = [typed] if typed in by_lower else get_close_matches(typed, by_lower, n=2, cutoff=0.65)
    alike = [by_lower[each] for each in nearest]
    return f" (did you mean {' or '.join(alike)}?)" if alike else ""


class SuggestingGroup(click.Group):
    """A group whose help shows whole sentences, and whose error at an unknown command names similar ones."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"subcommand_metavar": "COMMAND [ARGS]", **kwargs})

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        shown = [(name, each.get_short_help_str(SUMMARY_MAX)) for name, each in commands.items() if each is not None]
        with formatter.section("Commands"):
            formatter.write_dl(shown)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name[:1] != "-" and self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            own = close_to(name, self.list_commands(ctx))
            ctx.fail(f"No such command {name[:NAME_MAX]!r}{own or self._below(ctx, name)}")
        return super().resolve_command(ctx, args)

    def _below(self, ctx: click.Context, name: str) -> str:
        for group_name in self.list_commands(ctx):
            group = self.get_command(ctx, group_name)
            if isinstance(group, click.Group) and name in group.list_commands(ctx):
                return f" (did you mean {group_name} {name}?)"
        return ""


def _options(group: click.Group, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    return click.Command.shell_complete(group, ctx, incomplete) if incomplete[:1] == "-" else []


class LazyGroup(SuggestingGroup):
    """A group whose commands are imported when called: heading -> name -> ("module:attribute", what it does)."""

    def __init__(self, *args: Any, sections: Sections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections
        self._elsewhere = {name: each for section in sections.values() for name, each in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._elsewhere})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._elsewhere:
            return super().get_command(ctx, cmd_name)
        command: click.Command = attribute_of(self._elsewhere[cmd_name][0])
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names without what they stand for: no command is imported to be listed."""
        from click.shell_completion import CompletionItem

        summaries = {name: what for name, (_, what) in self._elsewhere.items()}
        items = [CompletionItem(name, help=what) for name, what in sorted(summaries.items())]
        return [*(item for item in items if item.value.startswith(incomplete)), *_options(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A list below each heading; names have one width, so that all summaries begin in one column."""
        width = max(map(len, self._elsewhere))
        for heading, section in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), what) for name, (_, what) in section.items()])
