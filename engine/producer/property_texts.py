"""Property strings of plain messages in the broker's order, with the broker's own: worked out once per set of names.

Order and additions depend on the names alone (Java's HashMap), so a set of names becomes a format string, and a message
only fills in its values. The rules themselves are `store.put.request`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from engine.errors import MessageIllegal
from engine.producer.columns import check_property, column_of_parts
from engine.producer.unique_keys import UniqueKeys
from engine.rings.encode_kernel import Column
from store.message.properties import NAME_SEPARATOR, PAIR_SEPARATOR, UNIQ_KEY
from store.put.policy import Facts, text_bytes
from store.put.request import SendRequest, received

PATTERNS_MAX = 1024
MARK = "\x00"  # of values alone: names may have it, too


class Pattern(NamedTuple):
    """A property string with `%s` for values; `pick` takes them, in order, from those of the message's names.

    `unique_at`: which of the picked values is a unique key that is made for the message (the last of its own); -1 for
    none. `until_unique` is what comes before that.
    """

    text: str
    pick: Callable[[Sequence[str]], tuple[str, ...]]
    unique_at: int
    until_unique: str


class PropertyColumn(NamedTuple):
    """The properties of a batch. `unique_at`: where in them a number lies that counts up from `unique_first`; or -1."""

    column: Column
    unique_at: int = -1
    unique_first: int = 0


class PropertyTexts:
    """Property strings for one producer."""

    def __init__(self, facts: Facts, keys: UniqueKeys, *, unique_keys: bool) -> None:
        self._facts, self._keys, self._adds_key = facts, keys, unique_keys or facts.policy.adds_unique_key
        self._patterns: dict[tuple[str, ...], Pattern] = {}
        self._empty = b"" if self._adds_key else text_bytes(self._pattern(()).text % ())

    def of(self, fields: Mapping[str, str]) -> bytes:
        """Return one message's property bytes. Raises MessageIllegal."""
        if not fields and self._empty:
            return self._empty
        for name, value in fields.items():
            check_property(name, value)
        return text_bytes(self._filled(tuple(fields), tuple(fields.values())))

    def column(self, count: int, fields: Mapping[str, Any]) -> PropertyColumn:
        """Return the properties of `count` messages: a str is every message's value, a sequence has one for each.

        One string for all when all have the same but for a unique key. Raises MessageIllegal.
        """
        names, varying = tuple(fields), False
        for name, value in fields.items():
            if isinstance(value, str):
                check_property(name, value)
            else:
                _check_values(name, value, count)
                check_property(name, "".join(one for one in value if one is not None) or "-")
                varying = True
        if varying:
            columns = [[value] * count if isinstance(value, str) else value for value in fields.values()]
            rows = zip(*columns, strict=True)
            return PropertyColumn(column_of_parts([text_bytes(self._row(names, row)) for row in rows]))
        pattern, first = self._pattern(names), self._keys.reserve(count) if self._adds_key else 0
        if pattern.unique_at < 0:
            return PropertyColumn(column_of_parts([text_bytes(pattern.text % pattern.pick(tuple(fields.values())))]))
        values = pattern.pick((*fields.values(), self._keys.text(first)))
        before = pattern.until_unique % values[: pattern.unique_at] + self._keys.prefix
        return PropertyColumn(column_of_parts([text_bytes(pattern.text % values)]), len(text_bytes(before)), first)

    def _row(self, names: tuple[str, ...], row: Sequence[Any]) -> str:
        """Return one message's property string; a value that is None or empty leaves the property out."""
        if None not in row and "" not in row:
            return self._filled(names, tuple(map(str, row)))
        present = {name: str(value) for name, value in zip(names, row, strict=True) if value not in (None, "")}
        return self._filled(tuple(present), tuple(present.values()))

    def _filled(self, names: tuple[str, ...], values: tuple[str, ...]) -> str:
        pattern = self._pattern(names)
        if pattern.unique_at >= 0:
            values = (*values, self._keys.text(self._keys.reserve(1)))
        return pattern.text % pattern.pick(values)

    def _pattern(self, names: tuple[str, ...]) -> Pattern:
        pattern = self._patterns.get(names)
        if pattern is None:
            if len(self._patterns) >= PATTERNS_MAX:
                self._patterns.clear()
            pattern = self._patterns[names] = self._made(names)
        return pattern

    def _made(self, names: tuple[str, ...]) -> Pattern:
        """Return what the broker makes of a message with these names, each value a mark."""
        marks = {name: f"{MARK}{number}" for number, name in enumerate(names)}
        if self._adds_key:
            marks.setdefault(UNIQ_KEY, f"{MARK}{len(names)}")
        properties = PAIR_SEPARATOR.join(f"{name}{NAME_SEPARATOR}{mark}" for name, mark in marks.items())
        request = SendRequest(topic="-", body=b"-", properties=properties)
        text = received(request, self._facts, marks.get(UNIQ_KEY, "")).properties
        order, formats, until_unique = list[int](), list[str](), ""
        for pair in text.split(PAIR_SEPARATOR):
            name, separator, value = pair.partition(NAME_SEPARATOR)
            shown = f"{name}{separator}".replace("%", "%%")
            if not value.startswith(MARK):
                formats.append(shown + value.replace("%", "%%"))
                continue
            order.append(int(value[1:]))
            if order[-1] == len(names):
                until_unique = PAIR_SEPARATOR.join([*formats, shown])
            formats.append(f"{shown}%s")
        unique_at = order.index(len(names)) if len(names) in order else -1
        return Pattern(PAIR_SEPARATOR.join(formats), _picker(order), unique_at, until_unique)


def _check_values(name: str, values: Any, count: int) -> None:
    """A column of a property: a str, or None, for each message. Raises MessageIllegal."""
    if isinstance(values, (bytes, bytearray, Mapping)) or not hasattr(values, "__len__"):
        what = f"it is a str for all, or a sequence of one for each, not {type(values).__name__}"
        raise MessageIllegal(f"property {name!r}", what)
    if len(values) != count:
        raise MessageIllegal(f"property {name}", f"{len(values)} values for {count} messages")
    wrong = next((one for one in values if one is not None and not isinstance(one, str)), None)
    if wrong is not None:
        raise MessageIllegal(f"property {name!r}", f"each of its values is a str or None, not {type(wrong).__name__}")


def rows_of(count: int, fields: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield each message's properties; a value that is None or empty is left out. Raises MessageIllegal."""
    for name, value in fields.items():
        if not isinstance(value, str):
            _check_values(name, value, count)
    for number in range(count):
        row = {name: value if isinstance(value, str) else value[number] for name, value in fields.items()}
        yield {name: str(value) for name, value in row.items() if value not in (None, "")}


def _picker(order: list[int]) -> Callable[[Sequence[str]], tuple[str, ...]]:
    if not order:
        return lambda _values: ()
    if len(order) == 1:
        only = order[0]
        return lambda values: (values[only],)
    return itemgetter(*order)
