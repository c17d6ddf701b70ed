"""JSON as fastjson 1.x writes and reads it: bare integer keys, and a pretty form of its own.

Implements: JSON.parse and JSON.toJSONString as RocketMQ uses them (spec: store-formats, 16 config/*.json)
Reading takes quoted and bare keys alike and gives all of them as text. Writing keeps the order of a mapping; an integer
key is written bare, as a Java map with such keys is. The pretty form (tabs) is the one of RocketMQ's config files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from store.errors import MalformedData

TEXT_OR_BARE_KEY = re.compile(r'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?\w+)(?=\s*:)')


def loads(content: bytes | memoryview | str, what: str = "JSON", bytes_max: int = 64 * 1024 * 1024) -> Any:
    """The value that `content` (named `what` in errors) holds. Raises MalformedData."""
    if len(content) > bytes_max:
        raise MalformedData(what, f"it has {len(content)} bytes, more than the {bytes_max} that are read")
    try:
        text = content if isinstance(content, str) else bytes(content).decode()
        return json.loads(TEXT_OR_BARE_KEY.sub(_quoted, text))
    except (ValueError, RecursionError) as reason:
        raise MalformedData(what, f"no JSON: {reason}") from None


def _quoted(found: re.Match[str]) -> str:
    before, key = found.groups()
    return found.group() if key is None else f'{before}"{key}"'


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
    else:
        yield json.dumps(value, ensure_ascii=False)


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
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        apart = "\n" + "\t" * (depth + 1)
        for index, item in enumerate(value):
            yield f"{',' if index else '['}{apart}"
            yield from _pretty(item, depth + 1)
        yield "\n" + "\t" * depth + "]"
    else:
        yield from _compact(value, True)


def _key(key: object, bare: bool) -> str:
    return str(key) if isinstance(key, int) and bare else json.dumps(str(key), ensure_ascii=False)
