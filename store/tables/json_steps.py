"""JSON of very many entries, read in steps: what `fastjson.loads` gives `as_written`, and nothing that it refuses.

Implements: JSON.parse as RocketMQ uses it
The library reads a text in one call, on whichever thread, and nobody else runs meanwhile. So it is given small parts
only: objects and lists of PART_CHARS at most, with one more level within. What is larger is gone through here. Lone
surrogates are refused in an entry, too, that an equal key behind it replaces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from json import JSONDecodeError
from typing import Any

from store.tables.fastjson import (
    BYTES_MAX,
    DECODER_OF_PLAIN,
    DEPTH_MAX,
    SURROGATE,
    LineList,
    MalformedJson,
    bare_key,
    read_as_written,
)
from store.tables.steps import at_once

PART_CHARS, STEP_CHARS = 2048, 4096
KEPT_LEVELS = 2  # of a damaged file: its object, and the tables in that
TEXT = r'"(?:[^"\\]++|\\.)*+"'
FLAT = rf'[{{\[](?:[^{{}}\[\]"]++|{TEXT})*+[}}\]]'
PART = re.compile(rf'[{{\[](?:[^{{}}\[\]"]++|{TEXT}|{FLAT})*+[}}\]]', re.DOTALL)
SPACE = re.compile(r"[ \t\n\r]*+")
BARE_KEY = re.compile(r"-?\w++(?=\s*+:)")
ON_LINES = re.compile(r"\[(?=\n\s*+[^\s\]])")
Steps = Generator[int, None, tuple[Any, int]]  # how many characters each step read; then a value, and where it ends


def loads_in_steps(
    content: bytes | memoryview, what: str = "JSON", bytes_max: int = BYTES_MAX
) -> Generator[int, None, Any]:
    """The value that `content` (named `what` in errors) holds. Raises MalformedJson; of equal keys the last counts."""
    if len(content) > bytes_max:
        raise MalformedJson(what, f"it has {len(content)} bytes, more than the {bytes_max} that are read")
    try:
        reader = _Reader(bytes(content).decode())
        return (yield from reader.whole())
    except (ValueError, ArithmeticError) as reason:
        raise MalformedJson(what, f"no JSON: {reason}") from None
    except TooDeep:
        raise MalformedJson(what, f"it has more than {DEPTH_MAX} levels") from None


def sound_beginning(content: bytes) -> Any:
    """Return what a damaged text says before its damage; None where no object begins there.

    These are the entries of the outermost object, and of the objects in it, that are whole.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        text = content[: error.start].decode()
    try:
        return at_once(_Reader(text, keeps_beginning=True).whole())
    except (ValueError, ArithmeticError, TooDeep):
        return None


class TooDeep(Exception):
    """Raised where there are more levels than are read."""


class _Reader:
    """Reader of one text. Its methods raise ValueError, ArithmeticError, TooDeep."""

    def __init__(self, text: str, *, keeps_beginning: bool = False) -> None:
        self._text, self._stepped_at = text, 0
        self._kept_levels = KEPT_LEVELS if keeps_beginning else 0  # of which the entries before an error count

    def whole(self) -> Generator[int, None, Any]:
        """Return the value of the whole text, in steps."""
        value, end = yield from self._value(self._after_space(0), 1)
        if self._after_space(end) != len(self._text) and not self._kept_levels:
            raise JSONDecodeError("Extra data", self._text, self._after_space(end))
        return value

    def _after_space(self, at: int) -> int:
        space = SPACE.match(self._text, at)
        assert space is not None
        return space.end()

    def _value(self, at: int, depth: int) -> Steps:
        small = self._small(at, depth)
        if small is not None:
            return small
        if depth > DEPTH_MAX:
            raise TooDeep
        return (yield from (self._object(at, depth) if self._text[at] == "{" else self._list(at, depth)))

    def _small(self, at: int, depth: int) -> tuple[Any, int] | None:
        """Return what the library may read at once: a plain value, or a small part; None for what is larger."""
        if self._text[at : at + 1] not in ("{", "["):
            return self._plain(at)
        part = PART.match(self._text, at, at + PART_CHARS) if self._kept_levels < depth < DEPTH_MAX else None
        if part is None:
            return None
        value = read_as_written(part.group())
        _check(part.group(), value)
        return value, part.end()

    def _plain(self, at: int) -> tuple[Any, int]:
        value, end = DECODER_OF_PLAIN.raw_decode(self._text, at)
        _check(self._text[at:end], value)
        return value, end

    def _object(self, at: int, depth: int) -> Steps:
        entries = dict[str | int, Any]()
        try:
            return entries, (yield from self._entries(entries, at, depth))
        except (ValueError, ArithmeticError, TooDeep):
            if depth > self._kept_levels:
                raise
            return entries, len(self._text)

    def _entries(self, entries: dict[str | int, Any], at: int, depth: int) -> Generator[int, None, int]:
        """Read an object's entries, in steps; return where it ends."""
        text = self._text
        at = self._after_space(at + 1)
        if text[at : at + 1] == "}":
            return at + 1
        while True:
            key, at = self._key(at)
            at = self._after_space(at)
            if text[at : at + 1] != ":":
                raise JSONDecodeError("Expecting ':' delimiter", text, at)
            at = self._after_space(at + 1)
            entries[key], at = self._small(at, depth + 1) or (yield from self._value(at, depth + 1))
            try:
                at, is_end = self._behind_one(at, "}")
            except JSONDecodeError:
                if not isinstance(entries[key], dict):
                    del entries[key]  # perhaps a number that goes on behind the damage
                raise
            if is_end:
                return at
            yield from self._step(at)

    def _key(self, at: int) -> tuple[str | int, int]:
        if self._text[at : at + 1] == '"':
            return self._plain(at)
        bare = BARE_KEY.match(self._text, at)
        if bare is None:
            raise JSONDecodeError("Expecting property name enclosed in double quotes", self._text, at)
        return bare_key(bare.group()), bare.end()

    def _list(self, at: int, depth: int) -> Steps:
        text = self._text
        items: list[Any] = LineList() if ON_LINES.match(text, at) else []
        at = self._after_space(at + 1)
        if text[at : at + 1] == "]":
            return items, at + 1
        while True:
            value, at = self._small(at, depth + 1) or (yield from self._value(at, depth + 1))
            items.append(value)
            at, is_end = self._behind_one(at, "]")
            if is_end:
                return items, at
            yield from self._step(at)

    def _behind_one(self, at: int, closing: str) -> tuple[int, bool]:
        """Return where the next one begins behind that which ended there; or where all of them end, and True."""
        at = self._after_space(at)
        if self._text[at : at + 1] == closing:
            return at + 1, True
        if self._text[at : at + 1] != ",":
            raise JSONDecodeError("Expecting ',' delimiter", self._text, at)
        return self._after_space(at + 1), False

    def _step(self, at: int) -> tuple[int, ...]:
        """A step, once enough was read."""
        read = at - self._stepped_at
        if read < STEP_CHARS:
            return ()
        self._stepped_at = at
        return (read,)


def _check(text: str, value: Any) -> None:
    """Raise an error for a lone surrogate, which UTF-8 cannot hold; valid UTF-8 has them only as numbers."""
    if "\\u" in text and SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False, default=str).encode()
