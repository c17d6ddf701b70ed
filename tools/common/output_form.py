"""For people or for programs: `--json`, and `-o table` or `-o json`, which every command that shows something takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

FORMS = click.Choice(["table", "json"])


def form(help_text: str, name: str = "as_json") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A command with both spellings; it is called with `name`, True for JSON."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(*, json_flag: bool, output: str | None, **arguments: Any) -> Any:
            if json_flag and output == "table":
                raise click.UsageError("--json and -o table say different things")
            return command(**{name: json_flag or output == "json"}, **arguments)

        spelt = click.option("-o", "--output", type=FORMS, help="For people (the default), or as --json.")(run)
        return click.option("--json", "json_flag", is_flag=True, help=help_text)(spelt)

    return decorate
