"""Arrow's types of decoded bodies, from Spark's DDL or the JSON of its types.

They are read here, `a bigint, b array<string>`: Spark makes a source in a process that has no JVM to ask, and who reads
a store without Spark has neither. Each is the Arrow type that Spark takes for its own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from spark_bridge.options.values import InvalidOption, json_value

_WORDS = re.compile(r"\s*(?:(`[^`]+`)|(\w+)|([<>(),:]))")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
TEXT = pa.string()
TIMESTAMP, LOCAL_TIMESTAMP = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_NAMED: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "byte": pa.int8(), "smallint": pa.int16(), "short": pa.int16(),
    "int": pa.int32(), "integer": pa.int32(), "bigint": pa.int64(), "long": pa.int64(), "float": pa.float32(),
    "real": pa.float32(), "double": pa.float64(), "string": pa.string(), "timestamp": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP, "timestamp_ntz": LOCAL_TIMESTAMP, "date": pa.date32(), "binary": pa.binary(),
}  # fmt: skip
NESTED_MAX = 60  # Arrow's own limit of a batch that is handed on is 64
KNOWN = ", ".join(sorted({*_NAMED, "decimal", "array", "struct", "map"}))


def array_of(element: pa.DataType, nullable: bool = True) -> pa.ListType:
    """An array, its field named as Spark names it."""
    return pa.list_(pa.field("element", element, nullable))


def map_of(value: pa.DataType, key: pa.DataType = TEXT) -> pa.MapType:
    """Return a map type, its keys texts by default, its fields named as Spark names them."""
    return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))


def holds(kind: pa.DataType, is_wanted: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type, or one inside of it, is as wanted."""
    return bool(is_wanted(kind)) or any(holds(kind.field(number).type, is_wanted) for number in range(kind.num_fields))


def checked(option: str, kind: pa.DataType) -> pa.DataType:
    """A type of bodies, if a column can be of it. Raises InvalidOption.

    A schema may be a stranger's, out of a registry. Of two fields of one name none can be asked for; deeper than
    NESTED_MAX Arrow does not hand batches on.
    """
    if pa.types.is_struct(kind) and not kind.num_fields:
        raise InvalidOption(f"{option}: a schema without fields, of which nothing can be read; read such bodies raw")
    waiting = [(kind, "the schema", 1)]
    while waiting:
        one, what, depth = waiting.pop()
        if depth > NESTED_MAX:
            raise InvalidOption(f"{option}: types inside each other, more than {NESTED_MAX} deep; read such bodies raw")
        fields = [one.field(number) for number in range(one.num_fields)]
        if pa.types.is_struct(one):
            names = sorted(field.name for field in fields)
            twice = [first for first, second in itertools.pairwise(names) if first == second]
            if twice:
                raise InvalidOption(f"{option}: {what} has {twice[0]!r} twice; give one of them another name")
        waiting += [(field.type, f"field {field.name!r}", depth + 1) for field in fields]
    return kind


def named_type(option: str, text: str) -> pa.StructType:
    """The columns of a JSON body: DDL (`id bigint, tags array<string>`), or what Spark's StructType.json() gives.

    Raises InvalidOption.
    """
    example = "columns as 'id bigint, name string, tags array<string>'"
    try:
        if text.lstrip().startswith("{"):
            return _of_json({**json_value(option, text, example), "type": "struct"})
        return _Ddl(text).columns()
    except InvalidOption:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidOption(f"{option}={text!r} ({error}): {example}") from error


def _of_json(written: Any) -> pa.DataType:
    """Return the type that Spark's JSON describes: a name, or an object that says what it holds."""
    if isinstance(written, str):
        number = _DECIMAL.fullmatch(written)
        return _named(written) if number is None else _decimal(int(number[1]), int(number[2]))
    if written["type"] == "struct":
        fields = [(str(one["name"]), _of_json(one["type"]), one.get("nullable", True)) for one in written["fields"]]
        return pa.struct([pa.field(name, kind, bool(nullable)) for name, kind, nullable in fields])
    if written["type"] == "array":
        return array_of(_of_json(written["elementType"]), bool(written.get("containsNull", True)))
    if written["type"] == "map":
        return map_of(_of_json(written["valueType"]), _key(_of_json(written["keyType"])))
    return _named(str(written["type"]))


def _named(name: str) -> pa.DataType:
    if name not in _NAMED:
        raise ValueError(f"{name!r} is not one of {KNOWN}")
    return _NAMED[name]


def _key(kind: pa.DataType) -> pa.DataType:
    if kind != TEXT:
        raise ValueError("the keys of a map in JSON are texts: map<string, ...>")
    return kind


def _decimal(precision: int, scale: int) -> pa.Decimal128Type:
    if not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise ValueError(f"decimal({precision},{scale}) is too large")
    return pa.decimal128(precision, scale)


class _Ddl:
    """A reader of `name type, name type`; inside: array<...>, map<string, ...>, struct<name: type>, decimal(p, s)."""

    def __init__(self, text: str) -> None:
        self._words: list[str] = []
        at, text = 0, text.strip()
        while at < len(text):
            match = _WORDS.match(text, at)
            if match is None:
                raise ValueError(f"{text[at:]!r} is not understood")
            self._words.append(match[0].strip())
            at = match.end()
        self._words.append("")

    def columns(self) -> pa.StructType:
        """Parse all columns of the text. Raises ValueError."""
        fields = self._fields("")
        if not fields:
            raise ValueError("it names no column")
        return pa.struct(fields)

    def _take(self, *expected: str) -> str:
        word = self._words.pop(0) if self._words else ""
        if expected and word not in expected:
            wanted = " or ".join(repr(one) if one else "the end" for one in expected)
            raise ValueError(f"expected {wanted}, found {word!r}" if word else f"expected {wanted} at its end")
        return word

    def _fields(self, end: str) -> list[pa.Field]:
        fields: list[pa.Field] = []
        while self._words[0] != end:
            if fields:
                self._take(",")
            name = self._take()
            if not re.fullmatch(r"`[^`]+`|\w+", name):
                raise ValueError(f"{name!r} is not a column's name")
            if self._words[0] == ":":
                self._take()
            fields.append(pa.field(name.strip("`"), self._type()))
        self._take(end)
        return fields

    def _type(self) -> pa.DataType:
        word = self._take().lower()
        if word in ("decimal", "numeric", "dec"):
            return self._decimal()
        if word == "array":
            self._take("<")
            inner = self._type()
            self._take(">")
            return array_of(inner)
        if word == "map":
            self._take("<")
            key = _key(self._type())
            self._take(",")
            inner = self._type()
            self._take(">")
            return map_of(inner, key)
        if word == "struct":
            self._take("<")
            return pa.struct(self._fields(">"))
        return _named(word)

    def _decimal(self) -> pa.Decimal128Type:
        if self._words[0] != "(":
            return _decimal(10, 0)
        self._take("(")
        precision = int(self._take())
        scale = int(self._take()) if self._take(",", ")") == "," else None
        if scale is not None:
            self._take(")")
        return _decimal(precision, scale or 0)
