"""Reads a java.util.Properties file exactly as Java does, and keeps the line numbers.

Implements: java.util.Properties.load(InputStream) (spec: configuration, section 1)
Trailing spaces are part of a value, as in Java; what to do about them is the caller's decision. A byte order mark is
dropped; Java takes it for a part of the first key.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

WHITESPACE = " \t\f"
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
UNICODE_DIGITS = 4
NEWLINE = re.compile(r"(\r\n|\n|\r)")


class Entry(NamedTuple):
    """One key with its value, and the line on which it begins (from 1)."""

    line: int
    key: str
    value: str


class MalformedEscape(ValueError):
    """Raised for a `\\u` without four hexadecimal digits; Java refuses the whole file. It may stand in a password."""

    def __init__(self, line: int) -> None:
        super().__init__("\\u needs four hexadecimal digits")
        self.line = line


def parse(data: bytes) -> Iterator[Entry]:
    """The entries in the file's order, also those whose key comes again later. Raises MalformedEscape."""
    for line, _last, text in _logical_lines(data.removeprefix(codecs.BOM_UTF8).decode("iso-8859-1")):
        key, value = _split(text)
        yield Entry(line, _unescape(key, line), _unescape(value, line))


def with_values(data: bytes, values: Mapping[str, str]) -> bytes:
    """The file with these values: each in the last line that sets its key, which counts, or in a new one at the end.

    All other bytes stay as they are. Keys and values are ASCII without white space at their ends and without escapes.
    Raises MalformedEscape.
    """
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    text = data.removeprefix(mark).decode("iso-8859-1")
    parts = [*NEWLINE.split(text), ""]
    lines, newlines = parts[::2], parts[1::2]
    newline = next(filter(None, reversed(newlines)), "\n")
    places = {_unescape(_split(joined)[0], first): (first, last) for first, last, joined in _logical_lines(text)}
    for key in sorted(values.keys() & places.keys(), key=lambda key: places[key], reverse=True):
        first, last = places[key]
        lines[first - 1 : last], newlines[first - 1 : last] = [f"{key}={values[key]}"], [newlines[last - 1]]
    edited = "".join(map("".join, zip(lines, newlines, strict=True)))
    added = "".join(f"{key}={value}{newline}" for key, value in values.items() if key not in places)
    if added and edited and not edited.endswith(("\n", "\r")):
        edited += newline
    if added and edited.rstrip("\r\n").endswith("\\"):
        edited += newline  # an empty line ends what the last one would continue
    return mark + (edited + added).encode("iso-8859-1")


def _logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Lines without comments and blank ones, each joined with those that continue it: first and last number, text."""
    started_at, number, joined = 0, 0, ""
    for number, natural in enumerate(NEWLINE.split(text)[::2], start=1):
        stripped = natural.lstrip(WHITESPACE)
        if not started_at:
            if not stripped or stripped[0] in "#!":
                continue
            started_at = number
        joined += stripped
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            joined = joined[:-1]
            continue
        yield started_at, number, joined
        started_at, joined = 0, ""
    if started_at:
        yield started_at, number, joined


def _split(text: str) -> tuple[str, str]:
    """Key and value, both still escaped: the key ends before the first unescaped `=`, `:` or white space."""
    end = 0
    while end < len(text) and text[end] not in "=:" + WHITESPACE:
        end += 2 if text[end] == "\\" else 1
    key, rest = text[:end], text[end:].lstrip(WHITESPACE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(WHITESPACE)
    return key, rest


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def replaced(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] == "u":
            if len(escape) != 1 + UNICODE_DIGITS:
                raise MalformedEscape(line)
            return chr(int(escape[1:], 16))
        return ESCAPES.get(escape, escape)

    plain = re.sub(r"\\(u[0-9a-fA-F]{4}|.|$)", lambda match: replaced(match) if match[1] else "", text, flags=re.DOTALL)
    if any("\ud800" <= letter <= "\udfff" for letter in plain):  # two escapes may make one character, as in UTF-16
        plain = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return plain
