"""For people or for programs: `--json`, and `-o table` or `-o json`, which every command that shows something takes.

A JSON object says by its key `schema` what it is, and docs/json has that schema. Its number grows when a key goes or
means something else; new keys may come at any time.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import click

FORMS = click.Choice(["table", "json"])


def in_colour(text: str, colour: str) -> str:
    """The text for standard output: in colour on a terminal that has some, unless NO_COLOR is set to anything."""
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")
    return text if is_plain or not sys.stdout.isatty() else click.style(text, fg=colour)


def json_text(schema: str, fields: Mapping[str, Any]) -> str:
    """One object on one line, of the first version of that schema."""
    return json.dumps({"schema": f"slipstream.{schema}/1", **fields}, ensure_ascii=False)


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
