"""The fields of a JSON object as fastjson 1.x gives them to a Java class: names matched loosely, kinds converted.

Implements: JavaBeanDeserializer.smartMatch, TypeUtils.castToInt/Long/Boolean, EnumDeserializer (fastjson 1.2.83)
A field's name counts in any case, with - and _ left out, a flag's also behind "is". Numbers may be texts, texts may be
numbers, an enum's value is its name in any case or its ordinal; a name that the enum does not have is null.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any

from store.tables import fastjson
from store.tables.fastjson import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, MalformedJson

NOTHING = ("", "null", "NULL")  # texts that are null where a number or a flag is expected
FLAGS = {"true": True, "1": True, "Y": True, "y": True, "T": True, "false": False, "0": False, "N": False, "F": False}
LOOSE_KEYS_MAX = 1024  # keys of one object that are matched loosely; no class has a tenth of it
WHOLE_TEXT = re.compile(r"([+-]?[0-9]{1,19})(?:\.0*)?")
DIGITS_MAX = 40
NAMED_CHARACTERS = 40  # of a refused value in an error


class JavaFields:
    """One object, to be read as a Java class reads it. A missing field and null give the default."""

    __slots__ = ("_fields", "_loose", "_what")

    def __init__(self, value: object, what: str, part: str = "the body") -> None:
        """`what`, `part`: for errors. Raises MalformedJson where the value is no object."""
        if not isinstance(value, dict):
            raise MalformedJson(what, f"{part} is not an object")
        self._fields: dict[str, Any] = value
        self._loose: dict[str, str] | None = None
        self._what = what

    def value(self, name: str, *, is_flag: bool = False) -> Any:
        """The value of that field, None where it is missing."""
        if name in self._fields:
            return self._fields[name]
        key = self._key_of(name) or (self._key_of(f"is{name}") if is_flag else None)
        return None if key is None else self._fields[key]

    def has(self, name: str) -> bool:
        """Whether the field is there, null or not."""
        return name in self._fields or self._key_of(name) is not None

    def text(self, name: str, default: str | None = None) -> str | None:
        """A String. Numbers and flags are given as texts, objects and lists as JSON."""
        value = self.value(name)
        return default if value is None else text_of(value)

    def number(self, name: str, default: int = 0, low: int = INT32_MIN, high: int = INT32_MAX) -> int:
        """A whole number within these bounds. Raises MalformedJson."""
        try:
            number = whole_of(self.value(name), low, high)
        except ValueError as wrong:
            raise MalformedJson(self._what, f"{name}: {wrong}") from None
        return default if number is None else number

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean field. Raises MalformedJson."""
        try:
            flag = flag_of(self.value(name, is_flag=True))
        except ValueError as wrong:
            raise MalformedJson(self._what, f"{name}: {wrong}") from None
        return default if flag is None else flag

    def one_of(self, name: str, names: Sequence[str]) -> str | None:
        """An enum's value, whose names are given in Java's order. Raises MalformedJson."""
        try:
            return enum_of(self.value(name), names)
        except ValueError as wrong:
            raise MalformedJson(self._what, f"{name}: {wrong}") from None

    def items(self, name: str, most: int) -> list[Any]:
        """A list or set. Raises MalformedJson, also for more than `most` items."""
        value = self.value(name)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > most:
            raise MalformedJson(self._what, f"{name} is not a list, or has more than {most} items")
        return value

    def objects(self, name: str, most: int) -> Iterator[JavaFields]:
        """A list of objects; one object stands for a list of it. Raises MalformedJson."""
        value = self.value(name)
        listed = [value] if isinstance(value, dict) else self.items(name, most)
        for one in listed:
            yield JavaFields(one, self._what, f"an item of {name}")

    def _key_of(self, name: str) -> str | None:
        """The key that stands for that name."""
        if self._loose is None:
            self._loose = {}
            for key in islice(self._fields, LOOSE_KEYS_MAX):
                self._loose.setdefault(_loosely(key), key)
        return self._loose.get(_loosely(name))


def text_of(value: object) -> str:
    """A value as a String holds it: null fields of objects are left out."""
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return str(value)
    return fastjson.dumps(_without_nulls(value))


def whole_of(value: object, low: int = INT64_MIN, high: int = INT64_MAX) -> int | None:
    """A value as an int or long holds it; fractions are cut off. Raises ValueError."""
    if value is None or value in NOTHING:
        return None
    number: int | None = None
    if isinstance(value, str):
        match = WHOLE_TEXT.fullmatch(value.replace(",", ""))
        number = int(match[1]) if match else None
    elif isinstance(value, int | float | Decimal) and abs(value) < 10**DIGITS_MAX:
        number = int(value)
    if number is None or not low <= number <= high:
        shown = "an object or a list" if isinstance(value, dict | list) else repr(str(value)[:NAMED_CHARACTERS])
        raise ValueError(f"{shown} is not a whole number from {low} to {high}")
    return number


def flag_of(value: object) -> bool | None:
    """A value as a boolean holds it: of numbers 1 is true. Raises ValueError."""
    if value is None or value in NOTHING:
        return None
    if isinstance(value, str):
        flag = FLAGS.get(value, FLAGS.get(value.lower()) if len(value) > 1 else None)
        if flag is not None:
            return flag
    elif isinstance(value, int | float | Decimal) and INT32_MIN <= value <= INT32_MAX:
        return int(value) == 1
    raise ValueError(f"{str(value)[:NAMED_CHARACTERS]!r} is neither true nor false")


def enum_of(value: object, names: Sequence[str]) -> str | None:
    """A value as an enum with these names holds it: a name in any case, or an ordinal. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, str):
        return value if value in names else next((name for name in names if name.lower() == value.lower()), None)
    if type(value) is not int or not 0 <= value < len(names):
        raise ValueError(f"{str(value)[:NAMED_CHARACTERS]!r} is neither a name nor an ordinal of {', '.join(names)}")
    return names[value]


def _loosely(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(of) for key, of in value.items() if of is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
