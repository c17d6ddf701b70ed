"""What `--help` prints, of every command: whole sentences at 80 columns, and every option explained."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from tools import cli
from tools.common.lazy_group import LazyGroup

COLUMNS = 80
FROM_CLICK = ("--help",)


def every_command() -> dict[str, tuple[click.Command, click.Context]]:
    return dict(_below(cli.cli, click.Context(cli.cli, info_name="slipstream", terminal_width=COLUMNS)))


def _below(command: click.Command, context: click.Context) -> Iterator[tuple[str, tuple[click.Command, click.Context]]]:
    yield context.command_path, (command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _below(below, click.Context(below, info_name=name, parent=context, terminal_width=COLUMNS))


COMMANDS = every_command()


@pytest.mark.parametrize("path", COMMANDS)
def test_help_fits_80_columns_and_shortens_nothing(path: str) -> None:
    command, context = COMMANDS[path]
    text = command.get_help(context)
    assert "..." not in text
    assert max(map(len, text.splitlines())) <= COLUMNS


@pytest.mark.parametrize("path", COMMANDS)
def test_the_list_of_commands_has_one_line_for_each(path: str) -> None:
    command, context = COMMANDS[path]
    if not isinstance(command, click.Group):
        return
    lines = command.get_help(context).splitlines()
    for name in command.list_commands(context):
        (line,) = [line for line in lines if line.startswith(f"  {name} ")]
        assert line.endswith("."), line


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_says_what_it_does_and_its_default(path: str) -> None:
    command, context = COMMANDS[path]
    for option in command.params:
        if not isinstance(option, click.Option) or option.opts[0] in FROM_CLICK:
            continue
        says = option.help or ""
        assert says.endswith("."), f"{path} {option.opts[0]}: {says!r}"
        default = option.get_default(context, call=False)
        if not option.is_flag and isinstance(default, int | float):
            assert any(f"Default: {text}." in says for text in (f"{default:g}", f"{default:,}", str(default))), says


def test_every_command_is_below_one_heading() -> None:
    assert isinstance(cli.cli, LazyGroup)
    listed = [name for section in cli.cli.sections.values() for name in section]
    assert sorted(listed) == sorted(cli.COMMANDS)
