"""The group `slipstream log`, which imports a command that is a module of its own when it is called."""

from __future__ import annotations

import importlib

import click

COMMANDS = {  # name: where it is, what it does
    "digest": ("tools.log_digest:digest", "Note the SHA-256 of sealed segments beside the store."),
    "export": ("tools.log_export:export", "Write the messages to a Parquet file or to JSON lines."),
    "map": ("tools.log_map:show_map", "Show the segments: sealed, flushed, in the page cache, leased."),
    "rebuild": ("tools.log_rebuild:rebuild", "Build queues or the index again from the log, without a broker."),
    "repair": ("tools.log_repair:repair", "Repair damaged ranges of the log from a replica's store."),
    "verify": ("tools.log_verify:verify", "Check every record, queue entry and index entry of a store."),
}


class LogGroup(click.Group):
    """Commands added to it, and those of COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _colon, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        told = {name: what for name, (_, what) in COMMANDS.items()}
        own = {name: command.get_short_help_str(80) for name, command in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted({**told, **own}.items()))
