"""The page of all commands, from their declarations: what `--help` says, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import click

from tools.cli import cli

HEAD = """# Commands

This page has the output of `slipstream COMMAND --help` for every command. Exit codes: 0 all well; 1 a check failed
or something was found; 2 wrong usage or configuration; 3 no broker serves; 4 input, output or the store failed;
130 interrupted. An error is one line: `slipstream: CODE: what, where, why, what to do`.

Type a time as ISO 8601 (`2026-11-21T08:30:00Z`; UTC without a zone), as a span before now (`-90s`, `-1h`, `-2d`), or in
milliseconds since 1970. Times are shown as ISO 8601 in UTC, and in JSON as milliseconds. An object that `--json` prints
names its [schema](../json/README.md).

"""
WIDTH = 100


def page() -> str:
    """Return the whole page as Markdown."""
    return HEAD + "".join(_section(path, text) for path, text in helps(cli, "slipstream"))


def helps(command: click.Command, path: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """(`slipstream log cat`, its help) of a command and of all below it."""
    name = path.rpartition(" ")[2]
    with click.Context(
        command, info_name=name, parent=parent, terminal_width=WIDTH, help_option_names=["-h", "--help"]
    ) as context:
        yield path, command.get_help(context)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                if below is not None and not below.hidden:
                    yield from helps(below, f"{path} {name}", context)


def _section(path: str, text: str) -> str:
    level = "##" if path.count(" ") < 2 else "###"
    return f"{level} {path}\n\n```text\n{text}\n```\n\n"
