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


def form(
    help_text: str, name: str = "as_json", *, flag: bool = True, output: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A command with both spellings; it is called with `name`, True for JSON.

    Without `flag` or `output` it has one of them: where `--json FILE` or `-o FILE` is a file to be written.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(**arguments: Any) -> Any:
            is_asked = flag and arguments.pop("json_flag")
            form_name = arguments.pop("form_name") if output else None
            if is_asked and form_name == "table":
                raise click.UsageError("--json and -o table say different things")
            return command(**{name: is_asked or form_name == "json"}, **arguments)

        made: Callable[..., Any] = run
        if output:
            spelt = f"For people (the default), or {'as --json' if flag else 'one JSON object'}."
            made = click.option("-o", "--output", "form_name", type=FORMS, help=spelt)(made)
        return click.option("--json", "json_flag", is_flag=True, help=help_text)(made) if flag else made

    return decorate
