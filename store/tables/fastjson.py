"""JSON as fastjson 1.x writes and reads it: bare integer keys, and a pretty form of its own.

Implements: JSON.parse and JSON.toJSONString as RocketMQ uses them (spec: store-formats, 16 config/*.json)
Reading takes quoted and bare keys alike and gives all of them as text, or, `as_written`, so that writing gives the same
bytes again. Writing keeps the order of a mapping; an integer key is written bare, as a Java map with such keys is. The
pretty form (tabs) is the one of RocketMQ's config files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from typing import Any

from store.errors import MalformedData, StoreError
from store.tables import loose_json

# A text matches even where its end is missing: no other search begins inside of it, so reading stays linear.
TEXT_OR_BARE_KEY = re.compile(r'"(?:[^"\\]++|\\.)*+"?|([{,]\s*+)(-?\w++)(?=\s*+:)', re.DOTALL)
NUMBER = r"-?(?:0|[1-9][0-9]{0,17}+)"  # of what is read at once: within Java's long whatever its digits are
NUMBERS = rf"\{{[ \t\n\r]*+({NUMBER}:{NUMBER}(?:,{NUMBER}:{NUMBER})*+)[ \t\n\r]*+\}}"  # as a map of offsets is written
ONLY_NUMBERS = re.compile(NUMBERS)
TEXT_OR_FORM = re.compile(rf"{NUMBERS}|{TEXT_OR_BARE_KEY.pattern}" r"|(\[)(?=\n\s*+[^\s\]])", re.DOTALL)
ON_LINES = "[\n"  # what a list that has lines begins with
SURROGATE = re.compile(r"[\ud800-\udfff]|\\u[dD][89a-fA-F]")  # perhaps a lone one, which no UTF-8 can say
MARK = f"\0{os.urandom(8).hex()}"  # before a bare integer, and first in a list with lines: nobody can write it
MARK_BEGINS = MARK[0]
WRITTEN_MARK = f'"\\u0000{MARK[1:]}'
SPECIAL = re.compile('[\x00-\x1f\x7f-\x9f"\\\\\u2028\u2029]')
ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
PLAIN = {str, int, bool, type(None)}
BYTE_ORDER_MARK = "\ufeff"
BYTES_MAX = 16 * 1024 * 1024
DEPTH_MAX = 64
INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX = -(2**31), 2**31 - 1, -(2**63), 2**63 - 1
INT64_DIGITS = 19
WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


class MalformedJson(MalformedData):
    """Raised for JSON of a request, an answer or a file that cannot be read or lacks a field.

    Next: correct the program that wrote it; the error names the field.
    """

    code = "MALFORMED_JSON"

    def __init__(self, what: str, reason: str) -> None:
        StoreError.__init__(self, f"{what}: {reason}; correct the program that wrote it")
        self.what, self.reason = what, reason


class LineList(list[Any]):
    """A list whose items stand on lines of their own in the pretty form: a Java List of plain values."""


NESTED = frozenset({dict, list, LineList})  # what reading makes that holds more


def loads(
    content: bytes | memoryview | str, what: str = "JSON", bytes_max: int = BYTES_MAX, *, as_written: bool = False
) -> Any:
    """The value that `content` (named `what` in errors) holds. Raises MalformedJson; of equal keys the last counts.

    `as_written`: bare integer keys are int, lists with lines are LineList, fractions are Decimal. What no answer of
    ours could say again is refused: malformed or too large numbers, lone surrogates, more than DEPTH_MAX levels.
    """
    if len(content) > bytes_max:
        raise MalformedJson(what, f"it has {len(content)} bytes, more than the {bytes_max} that are read")
    try:
        text = content if isinstance(content, str) else bytes(content).decode()
        value = read_as_written(text) if as_written else _plain(text)
        if ("\\u" in text or not text.isascii()) and SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False, default=str).encode()
    except (ValueError, ArithmeticError, RecursionError) as reason:
        raise MalformedJson(what, f"no JSON: {reason}") from None
    if text.count("[") + text.count("{") > DEPTH_MAX and _is_too_deep(value):
        raise MalformedJson(what, f"it has more than {DEPTH_MAX} levels")
    return value


def sent(content: bytes | memoryview, what: str, bytes_max: int, loose_max: int = loose_json.CHARACTERS_MAX) -> Any:
    """Return what a client or an administrator sent in `content`, in any form that fastjson reads.
    Raises MalformedJson.

    Fractions are Decimal. Half a surrogate pair is "?", as Java writes it. A text that is JSON to fastjson alone may
    have `loose_max` characters. A blank text is None.
    """
    if len(content) > bytes_max:
        raise MalformedJson(what, f"it has {len(content)} bytes, more than the {bytes_max} that are read")
    text = bytes(content).decode("utf-8", "replace").removeprefix(BYTE_ORDER_MARK)
    try:
        try:
            value = DECODER_OF_PLAIN.decode(text)
        except ValueError:
            if len(text) > loose_max:
                raise
            value = loose_json.read(text)
    except (ValueError, ArithmeticError, RecursionError) as reason:
        raise MalformedJson(what, f"no JSON: {reason}") from None
    if text.count("[") + text.count("{") > DEPTH_MAX and _is_too_deep(value):
        raise MalformedJson(what, f"it has more than {DEPTH_MAX} levels")
    return _without_halves(value) if "\\u" in text and SURROGATE.search(text) else value


def _without_halves(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_without_halves(key): _without_halves(of) for key, of in value.items()}
    return [_without_halves(item) for item in value] if isinstance(value, list) else value


def _plain(text: str) -> Any:
    """Most of it has no bare keys: that is tried first."""
    try:
        return DECODER.decode(text)
    except ValueError:
        return DECODER.decode(TEXT_OR_BARE_KEY.sub(_quoted, text))


def read_as_written(text: str) -> Any:
    """Read like `loads` with `as_written`, without its checks. Raises ValueError and other errors."""
    if ON_LINES not in text:
        with suppress(ValueError):  # as it comes where there are bare keys
            return DECODER_OF_PLAIN.decode(text)
    if alone := ONLY_NUMBERS.fullmatch(text):
        return _numbers(alone[1])
    return _Forms().read(text)


def _numbers(pairs: str) -> dict[str | int, Any]:
    each = map(int, pairs.replace(":", ",").split(","))
    return dict(zip(each, each, strict=True))


class _Forms:
    """Reads a text with forms that the library knows nothing of: it is given marks in their place."""

    def __init__(self) -> None:
        self._of_numbers: list[dict[str | int, Any]] = []

    def read(self, text: str) -> Any:
        """The value of the text. Raises ValueError and other errors."""
        decoder = json.JSONDecoder(object_pairs_hook=self._unmarked, parse_float=Decimal, parse_constant=_no_number)
        return _list_as_written(decoder.decode(TEXT_OR_FORM.sub(self._marked, text)))

    def _marked(self, match: re.Match[str]) -> str:
        numbers, before, key, bracket = match.groups()
        if numbers is not None:
            self._of_numbers.append(_numbers(numbers))
            return f'{{{WRITTEN_MARK}":{len(self._of_numbers) - 1}}}'
        if bracket:
            return f'[{WRITTEN_MARK}",'
        return match.group() if key is None else f'{before}{WRITTEN_MARK}{key}"'

    def _unmarked(self, pairs: list[tuple[str, Any]]) -> dict[str | int, Any]:
        if pairs and pairs[0][0] == MARK:
            number: int = pairs[0][1]
            return self._of_numbers[number]
        entries: dict[str | int, Any] = {}
        for key, value in pairs:  # what is called here is called for each of very many
            entries[_key_as_written(key) if key[:1] == MARK_BEGINS else key] = (
                _list_as_written(value) if type(value) is list else value
            )
        return entries


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number")


DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number)
DECODER_OF_PLAIN = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_number)


def _is_too_deep(value: Any) -> bool:
    level = [value] if type(value) in NESTED else []
    for _ in range(DEPTH_MAX):
        inner = (of.values() if type(of) is dict else of for of in level)
        level = [item for items in inner for item in items if type(item) in NESTED]
        if not level:
            return False
    return True


def whole_number(value: Any, low: int = INT64_MIN, high: int = INT64_MAX) -> int:
    """A whole number within these bounds, quoted or not, as a Java field of that range holds it. Raises ValueError."""
    if isinstance(value, str) and WHOLE.fullmatch(value):
        value = int(value)
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{str(value)[:40]!r} is not a whole number from {low} to {high}")
    return value


def _quoted(match: re.Match[str]) -> str:
    before, key = match.groups()
    return match.group() if key is None else f'{before}"{key}"'


def _key_as_written(key: str) -> str | int:
    return bare_key(key[len(MARK) :]) if key.startswith(MARK) else key


def bare_key(name: str) -> str | int:
    """A key that stands there without quotes. Raises ValueError."""
    if name.isdecimal() and name.isascii() and len(name) < INT64_DIGITS:
        return int(name)
    if not name.lstrip("-").isdecimal():
        return name
    return whole_number(name)  # of Java's long: larger ones could be chosen so that all of them share one hash


def _list_as_written(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    items = [_list_as_written(item) for item in value]
    return LineList(items[1:]) if items and items[0] == MARK else items


def dumps(value: object, *, bare_keys: bool = True) -> str:
    """Compact, as on the wire; without `bare_keys` integer keys are quoted, as new clients want it."""
    if _is_plain(value, {str} if bare_keys else {str, int}):
        text = ENCODER.encode(value)
        if text.isprintable() and "\\u00" not in text:  # else perhaps one whose escapes are not fastjson's
            return text
    parts: list[str] = []
    _compact(value, bare_keys, parts)
    return "".join(parts)


def _is_plain(value: object, keys: set[type]) -> bool:
    """Whether the library's writer writes it as fastjson does, but for some characters."""
    if type(value) in PLAIN:
        return True
    if not isinstance(value, dict | list | tuple) or (isinstance(value, dict) and not set(map(type, value)) <= keys):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return all(_is_plain(item, keys) for item in inner if type(item) not in PLAIN)


def _compact(value: object, bare_keys: bool, parts: list[str]) -> None:
    if isinstance(value, Mapping):
        for index, (key, of) in enumerate(value.items()):
            parts.append(f"{',' if index else '{'}{_key(key, bare_keys)}:")
            _compact(of, bare_keys, parts)
        parts.append("}" if value else "{}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            parts.append("," if index else "[")
            _compact(item, bare_keys, parts)
        parts.append("]" if value else "[]")
    elif isinstance(value, str):
        parts.append(_text(value))
    else:
        parts.append(str(value) if isinstance(value, Decimal) else json.dumps(value))


def dumps_pretty(value: object, depth: int = 0) -> str:
    """Write a value with tabs, as RocketMQ writes its config files; `depth`: as a part of another value."""
    parts: list[str] = []
    _pretty(value, depth, parts)
    return "".join(parts)


def _pretty(value: object, depth: int, parts: list[str]) -> None:
    apart = "\n" + "\t" * (depth + 1)
    if isinstance(value, dict) and value and (quick := _flat(value, apart)):
        parts.append(quick)
    elif isinstance(value, Mapping) and value:
        # a Java map with integer keys is written by another writer, which breaks only before its end
        between = "" if all(isinstance(key, int) for key in value) else apart
        for index, (key, of) in enumerate(value.items()):
            parts.append(f"{',' if index else '{'}{between}{_key(key, True)}:")
            _pretty(of, depth + 1, parts)
        parts.append(apart[:-1] + "}")
    elif isinstance(value, list | tuple) and value and _has_lines(value):
        for index, item in enumerate(value):
            parts.append(f"{',' if index else '['}{apart}")
            _pretty(item, depth + 1, parts)
        parts.append(apart[:-1] + "]")
    else:
        _compact(value, True, parts)


def _flat(value: dict[Any, Any], apart: str) -> str:
    """A table's entry by the library's writer, many times as fast; empty where that might not be fastjson's form."""
    plain = all(type(item) in PLAIN or item == {} for item in value.values())
    if not plain or not all(type(key) is str for key in value):
        return ""
    text = _encoder_of(apart).encode(value)
    if not text.replace(apart, "").isprintable() or "\\u00" in text:
        return ""
    return f"{{{apart}{text[1:-1]}{apart[:-1]}}}"


@lru_cache(DEPTH_MAX)
def _encoder_of(apart: str) -> json.JSONEncoder:
    return json.JSONEncoder(ensure_ascii=False, separators=("," + apart, ":"))


def _has_lines(value: list[Any] | tuple[Any, ...]) -> bool:
    return isinstance(value, LineList) or any(isinstance(item, Mapping) for item in value)


def _key(key: object, bare: bool) -> str:
    return str(key) if isinstance(key, int) and bare else _text(str(key))


def _text(text: str) -> str:
    """A text in quotes; fastjson escapes the C1 controls and the line separators, too."""
    return '"' + SPECIAL.sub(lambda match: ESCAPES.get(match.group()) or f"\\u{ord(match.group()):04X}", text) + '"'
