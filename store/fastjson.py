"""JSON as fastjson 1.x writes and reads it: bare integer keys, and a pretty form of its own.

Implements: JSON.parse and JSON.toJSONString as RocketMQ uses them (spec: store-formats, 16 config/*.json)
Reading takes quoted and bare keys alike and gives all of them as text, or, `as_written`, so that writing gives the same
bytes again. Writing keeps the order of a mapping; an integer key is written bare, as a Java map with such keys is. The
pretty form (tabs) is the one of RocketMQ's config files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from store.errors import MalformedData

TEXT_OR_BARE_KEY = re.compile(r'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?\w+)(?=\s*:)')
TEXT_OR_FORM = re.compile(TEXT_OR_BARE_KEY.pattern + r"|(\[)(?=\n\s*[^\s\]])")
MARK = "\0"  # before a bare integer, and first in a list with lines: no text of RocketMQ's begins with it
SPECIAL = re.compile("[\x00-\x1f\x7f-\x9f\"\\\\\u2028\u2029]")
ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


class LineList(list[Any]):
    """A list whose items stand on lines of their own in the pretty form: a Java List of plain values."""


def loads(
    content: bytes | memoryview | str, what: str = "JSON", bytes_max: int = 64 * 1024 * 1024, *,
    as_written: bool = False,
) -> Any:  # fmt: skip
    """The value that `content` (named `what` in errors) holds. Raises MalformedData.

    `as_written`: bare integer keys are int, lists with lines are LineList.
    """
    if len(content) > bytes_max:
        raise MalformedData(what, f"it has {len(content)} bytes, more than the {bytes_max} that are read")
    try:
        text = content if isinstance(content, str) else bytes(content).decode()
        if as_written:
            return json.loads(TEXT_OR_FORM.sub(_marked, text), object_pairs_hook=_unmarked, parse_float=Decimal)
        return json.loads(TEXT_OR_BARE_KEY.sub(_quoted, text))
    except (ValueError, ArithmeticError, RecursionError) as reason:
        raise MalformedData(what, f"no JSON: {reason}") from None


def _quoted(found: re.Match[str]) -> str:
    before, key = found.groups()
    return found.group() if key is None else f'{before}"{key}"'


def _marked(found: re.Match[str]) -> str:
    before, key, bracket = found.groups()
    if bracket:
        return '["\\u0000",'
    return found.group() if key is None else f'{before}"\\u0000{key}"'


def _unmarked(pairs: list[tuple[str, Any]]) -> dict[str | int, Any]:
    return {_key_as_written(key): _list_as_written(value) for key, value in pairs}


def _key_as_written(key: str) -> str | int:
    if not key.startswith(MARK):
        return key
    name = key[len(MARK) :]
    return int(name) if name.lstrip("-").isdecimal() else name


def _list_as_written(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    items = [_list_as_written(item) for item in value]
    return LineList(items[1:]) if items and items[0] == MARK else items


def dumps(value: object, *, bare_keys: bool = True) -> str:
    """Compact, as on the wire; without `bare_keys` integer keys are quoted, as new clients want it."""
    return "".join(_compact(value, bare_keys))


def _compact(value: object, bare_keys: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        for index, (key, of) in enumerate(value.items()):
            yield "," if index else "{"
            yield f"{_key(key, bare_keys)}:"
            yield from _compact(of, bare_keys)
        yield "}" if value else "{}"
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield "," if index else "["
            yield from _compact(item, bare_keys)
        yield "]" if value else "[]"
    elif isinstance(value, str):
        yield _text(value)
    else:
        yield str(value) if isinstance(value, Decimal) else json.dumps(value)


def dumps_pretty(value: object) -> str:
    """With tabs, as RocketMQ writes its config files."""
    return "".join(_pretty(value, 0))


def _pretty(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        # a Java map with integer keys is written by another writer, which breaks only before its end
        apart = "" if all(isinstance(key, int) for key in value) else "\n" + "\t" * (depth + 1)
        for index, (key, of) in enumerate(value.items()):
            yield f"{',' if index else '{'}{apart}{_key(key, True)}:"
            yield from _pretty(of, depth + 1)
        yield "\n" + "\t" * depth + "}"
    elif isinstance(value, list | tuple) and value and _has_lines(value):
        apart = "\n" + "\t" * (depth + 1)
        for index, item in enumerate(value):
            yield f"{',' if index else '['}{apart}"
            yield from _pretty(item, depth + 1)
        yield "\n" + "\t" * depth + "]"
    else:
        yield from _compact(value, True)


def _has_lines(value: list[Any] | tuple[Any, ...]) -> bool:
    return isinstance(value, LineList) or any(isinstance(item, Mapping) for item in value)


def _key(key: object, bare: bool) -> str:
    return str(key) if isinstance(key, int) and bare else _text(str(key))


def _text(text: str) -> str:
    """A text in quotes; fastjson escapes the C1 controls and the line separators, too."""
    return '"' + SPECIAL.sub(lambda found: ESCAPES.get(found.group()) or f"\\u{ord(found.group()):04X}", text) + '"'
