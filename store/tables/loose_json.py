"""Texts that are JSON to fastjson 1.x alone: comments, single quotes, bare names, commas to spare, numbers with a sign.

Implements: JSONLexerBase, DefaultJSONParser with fastjson's default features (1.2.69, 1.2.83)
What most clients send is JSON to everybody and is read by the library; this reader is for the rest, and slower.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

CHARACTERS_MAX = 1 << 20  # about a second of work
LEVELS_MAX = 64
BLANK = re.compile(r"(?:[\x00-\x20\x7f]++|//[^\n]*+(?:\n|\Z)|/\*.*?\*/)*+", re.DOTALL)
TEXT = re.compile(r'"((?:[^"\\]++|\\.)*+)"|\'((?:[^\'\\]++|\\.)*+)\'', re.DOTALL)
NUMBER = re.compile(r"([+-]?[0-9]++)(\.[0-9]*+)?([eE][+-]?[0-9]++)?+([LSBFD])?")
NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*+|-?[0-9]++")
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
ESCAPED = {
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "F": "\f",
    "r": "\r",
    '"': '"',
    "'": "'",
    "/": "/",
    "\\": "\\",
    **{str(number): chr(number) for number in range(8)},
}
WORDS: Final = {"true": True, "false": False, "null": None, "undefined": None, "NaN": None}
LISTS = ("Set", "TreeSet")  # words that may stand before a list
FRACTION_SUFFIXES = ("F", "D")
NAMED_CHARACTERS = 20


def read(text: str) -> Any:
    """The value of the text, None for a blank one; fractions are Decimal. Raises ValueError."""
    if len(text) > CHARACTERS_MAX:
        raise ValueError(f"a text of {len(text)} characters that is JSON only for fastjson")
    reader = _Reader(text)
    reader.skip()
    if reader.is_at_end:
        return None
    value = reader.value(0)
    reader.skip()
    if not reader.is_at_end:
        raise reader.wrong("something follows its end")
    return value


class _Reader:
    """Reader of a text, at a position."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    @property
    def is_at_end(self) -> bool:
        """Return whether nothing is left but 0x1A, which ends a text for fastjson."""
        return not self._text[self._at : self._at + 1].strip("\x1a")

    def wrong(self, what: str) -> ValueError:
        """An error that says where."""
        return ValueError(f"{what}: {self._text[self._at : self._at + NAMED_CHARACTERS]!r} at {self._at}")

    def skip(self) -> None:
        """Go on behind blanks and comments."""
        if match := BLANK.match(self._text, self._at):
            self._at = match.end()

    def value(self, level: int) -> Any:
        """The value that begins here. Raises ValueError."""
        if level > LEVELS_MAX:
            raise ValueError(f"it has more than {LEVELS_MAX} levels")
        first = self._text[self._at : self._at + 1]
        if first == "{":
            return self._object(level)
        if first == "[":
            return self._list(level)
        if first in ('"', "'"):
            return self._quoted()
        if match := NUMBER.match(self._text, self._at):
            self._at = match.end()
            return _number(match)
        return self._word(level)

    def _word(self, level: int) -> Any:
        match = NAME.match(self._text, self._at)
        if match and match.group() in WORDS:
            self._at = match.end()
            return WORDS[match.group()]
        if match and match.group() in LISTS and self._text[match.end() : match.end() + 1] == "[":
            self._at = match.end()
            return self._list(level)
        raise self.wrong("no value begins here")

    def _object(self, level: int) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while not self._ends(between="}", is_first=not entries):
            name = self._name()
            self.skip()
            if self._text[self._at : self._at + 1] != ":":
                raise self.wrong("no : behind a name")
            self._at += 1
            self.skip()
            entries[name] = self.value(level + 1)
        return entries

    def _list(self, level: int) -> list[Any]:
        items: list[Any] = []
        while not self._ends(between="]", is_first=not items):
            items.append(self.value(level + 1))
        return items

    def _ends(self, *, between: str, is_first: bool) -> bool:
        """Go on to the next entry, or behind the end, which `between` is. Commas may be too many, never missing."""
        if is_first:
            self._at += self._text[self._at] in "{["
        self.skip()
        commas = 0
        while self._text[self._at : self._at + 1] == ",":
            self._at, commas = self._at + 1, commas + 1
            self.skip()
        if self._text[self._at : self._at + 1] == between:
            self._at += 1
            return True
        if not is_first and not commas:
            raise self.wrong("no , between two entries")
        return False

    def _name(self) -> str:
        if self._text[self._at : self._at + 1] in ('"', "'"):
            return self._quoted()
        match = NAME.match(self._text, self._at)
        if not match:
            raise self.wrong("no name begins here")
        self._at = match.end()
        return match.group()

    def _quoted(self) -> str:
        match = TEXT.match(self._text, self._at)
        if not match:
            raise self.wrong("a text without its end")
        self._at = match.end()
        text = match[1] if match[2] is None else match[2]
        if "\\" not in text:
            return text
        # two halves of a pair that are escaped one by one are one character
        return ESCAPE.sub(_unescaped, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _unescaped(match: re.Match[str]) -> str:
    four, two, one = match.groups()
    if one is None:
        return chr(int(four or two, 16))
    if one not in ESCAPED:
        raise ValueError(f"{match.group()!r} is not an escape")
    return ESCAPED[one]


def _number(match: re.Match[str]) -> int | Decimal:
    whole, fraction, exponent, suffix = match.groups()
    if suffix in FRACTION_SUFFIXES and not fraction and not exponent:
        fraction = ".0"
    if exponent or (fraction and fraction != "."):
        return Decimal(f"{whole}{fraction or ''}{exponent or ''}")
    return int(whole)
