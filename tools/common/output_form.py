"""For people or for programs: `--json`, and `-o table` or `-o json`, which every command that shows something takes.

A JSON object says by its key `schema` what it is, and docs/json has that schema. Its number grows when a key goes or
means something else; new keys may come at any time.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

import click

ESCAPED, ESCAPED_OR_BYTES = "slipstream.escaped", "slipstream.escaped_or_bytes"  # handlers of errors of encodings
FORMS = click.Choice(["table", "json"])


def in_colour(text: str, colour: str) -> str:
    """The text for standard output: in colour on a terminal that has some, unless NO_COLOR is set to anything."""
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")
    return text if is_plain or not sys.stdout.isatty() else click.style(text, fg=colour)


def lose_no_letter() -> None:
    """Have standard output and errors take every text, whatever their encoding lacks: it is escaped as in JSON, so that
    lines of JSON stay what they are. What messages and names hold is for others to choose, and ends no command."""
    codecs.register_error(ESCAPED, _escaped)
    codecs.register_error(ESCAPED_OR_BYTES, partial(_escaped, keeps_bytes=True))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # of the C locale: bytes of names that are no text come out as such
            stream.reconfigure(errors=ESCAPED_OR_BYTES if stream.errors == "surrogateescape" else ESCAPED)


def _escaped(error: UnicodeError, *, keeps_bytes: bool = False) -> tuple[bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = b""
    for letter in error.object[error.start : error.end]:
        if keeps_bytes and "\udc80" <= letter <= "\udcff":
            text += bytes((ord(letter) & 0xFF,))
        else:
            units = letter.encode("utf-16-be", "surrogatepass")
            text += b"".join(b"\\u" + units[at : at + 2].hex().encode() for at in range(0, len(units), 2))
    return text, error.end


def json_text(schema: str, fields: Mapping[str, Any]) -> str:
    """Return one JSON object on one line, of the schema's first version."""
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
                raise click.UsageError("--json and -o table contradict each other")
            return command(**{name: is_asked or form_name == "json"}, **arguments)

        made: Callable[..., Any] = run
        if output:
            spelt = "Output format. Default: table."
            made = click.option("-o", "--output", "form_name", type=FORMS, help=spelt)(made)
        return click.option("--json", "json_flag", is_flag=True, help=help_text)(made) if flag else made

    return decorate
