"""Spark's types of decoded bodies: from DDL or JSON text, without a JVM to ask, and from an Avro schema.

Spark makes a source in a Python process that has no JVM, so `a bigint, b array<string>` is read here. Avro's types map
as Spark's own Avro source maps them.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import types as t

from spark_bridge.options.values import InvalidOption, json_value

_WORDS = re.compile(r"\s*(?:(`[^`]+`)|(\w+)|([<>(),:]))")
_NAMED: dict[str, t.DataType] = {
    "boolean": t.BooleanType(), "tinyint": t.ByteType(), "byte": t.ByteType(), "smallint": t.ShortType(),
    "short": t.ShortType(), "int": t.IntegerType(), "integer": t.IntegerType(), "bigint": t.LongType(),
    "long": t.LongType(), "float": t.FloatType(), "real": t.FloatType(), "double": t.DoubleType(),
    "string": t.StringType(), "timestamp": t.TimestampType(),
}  # fmt: skip
_AVRO: dict[str, t.DataType] = {
    "boolean": t.BooleanType(), "int": t.IntegerType(), "long": t.LongType(), "float": t.FloatType(),
    "double": t.DoubleType(), "string": t.StringType(), "bytes": t.BinaryType(), "enum": t.StringType(),
    "fixed": t.BinaryType(), "null": t.NullType(),
}  # fmt: skip
_AVRO_LOGICAL: dict[tuple[str, str], t.DataType] = {
    ("int", "date"): t.DateType(),
    ("long", "timestamp-millis"): t.TimestampType(),
    ("long", "timestamp-micros"): t.TimestampType(),
    ("long", "local-timestamp-millis"): t.TimestampNTZType(),
    ("long", "local-timestamp-micros"): t.TimestampNTZType(),
}
_WIDER = {
    frozenset({"int", "long"}): "long",
    frozenset({"float", "double"}): "double",
}
_JSON_TYPES = (*{type(of_type) for of_type in _NAMED.values()}, t.DecimalType)


def named_type(option: str, text: str) -> t.StructType:
    """The columns of a JSON body: DDL (`id bigint, tags array<string>`), or what StructType.json() gives."""
    example = "columns as 'id bigint, name string, tags array<string>'"
    try:
        if text.lstrip().startswith("{"):
            of_type = t.StructType.fromJson(json_value(option, text, example))
        else:
            of_type = _Ddl(text).columns()
    except InvalidOption:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidOption(f"{option}={text!r} ({error}): {example}") from error
    check_json_type(option, of_type)
    return of_type


def check_json_type(option: str, of_type: t.DataType) -> None:
    """Raise InvalidOption for what no JSON value is read as. Maps, dates and binary values are to be read as text."""
    if isinstance(of_type, t.StructType):
        for field in of_type.fields:
            check_json_type(f"{option}.{field.name}", field.dataType)
    elif isinstance(of_type, t.ArrayType):
        check_json_type(f"{option}[]", of_type.elementType)
    elif not isinstance(of_type, _JSON_TYPES):
        known = ", ".join(sorted({*_NAMED, "decimal", "array", "struct"}))
        raise InvalidOption(f"{option}: JSON is not decoded to {of_type.simpleString()}; known: {known}")


class _Ddl:
    """A reader of `name type, name type`, with array<...>, struct<name: type> and decimal(p, s) inside."""

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

    def columns(self) -> t.StructType:
        """All of it."""
        fields = self._fields("")
        if not fields:
            raise ValueError("it names no column")
        return t.StructType(fields)

    def _take(self, *expected: str) -> str:
        word = self._words.pop(0) if self._words else ""
        if expected and word not in expected:
            wanted = " or ".join(repr(one) if one else "the end" for one in expected)
            raise ValueError(f"expected {wanted}, found {word!r}" if word else f"expected {wanted} at its end")
        return word

    def _fields(self, end: str) -> list[t.StructField]:
        fields: list[t.StructField] = []
        while self._words[0] != end:
            if fields:
                self._take(",")
            name = self._take()
            if not re.fullmatch(r"`[^`]+`|\w+", name):
                raise ValueError(f"{name!r} is not a column's name")
            if self._words[0] == ":":
                self._take()
            fields.append(t.StructField(name.strip("`"), self._type()))
        self._take(end)
        return fields

    def _type(self) -> t.DataType:
        word = self._take().lower()
        if word in _NAMED:
            return _NAMED[word]
        if word in ("decimal", "numeric", "dec"):
            return self._decimal()
        if word == "array":
            self._take("<")
            inner = self._type()
            self._take(">")
            return t.ArrayType(inner)
        if word == "struct":
            self._take("<")
            return t.StructType(self._fields(">"))
        raise ValueError(f"{word!r} is not one of {', '.join(sorted({*_NAMED, 'decimal', 'array', 'struct'}))}")

    def _decimal(self) -> t.DecimalType:
        if self._words[0] != "(":
            return t.DecimalType(10, 0)
        self._take("(")
        precision = int(self._take())
        scale = int(self._take()) if self._take(",", ")") == "," else None
        if scale is not None:
            self._take(")")
        if not 1 <= precision <= 38 or not 0 <= (scale or 0) <= precision:
            raise ValueError(f"decimal({precision},{scale or 0}) is too large")
        return t.DecimalType(precision, scale or 0)


def avro_type(option: str, text: str) -> t.DataType:
    """The type of values of an Avro schema. Raises InvalidOption."""
    try:
        from fastavro.schema import parse_schema
    except ImportError as error:
        raise InvalidOption("decode=avro needs the package fastavro on the driver and the executors") from error
    try:
        named: dict[str, Any] = {}
        parsed = parse_schema(json_value(option, text, "give an Avro schema as JSON"), named)
        return _avro(parsed, named, ())
    except InvalidOption:
        raise
    except Exception as error:  # whatever the library finds wrong with it
        raise InvalidOption(f"{option}={text!r} ({error!r}): an Avro schema as JSON") from error


def _avro(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> t.DataType:
    if isinstance(schema, list):
        return _avro_union(schema, named, inside)
    if isinstance(schema, str) and schema in named:
        return _avro(named[schema], named, inside)
    kind, logical = (schema, None) if isinstance(schema, str) else (schema["type"], schema.get("logicalType"))
    if kind in ("record", "error"):
        if schema["name"] in inside:
            raise InvalidOption(f"avroSchema: {schema['name']} holds itself; Spark has no such type")
        fields = [(one["name"], _avro(one["type"], named, (*inside, schema["name"]))) for one in schema["fields"]]
        return t.StructType([t.StructField(name, of_type) for name, of_type in fields])
    if kind == "array":
        items = _avro(schema["items"], named, inside)
        if _takes_no_bytes(items):
            raise InvalidOption("avroSchema: an array whose items take no bytes has no bound")
        return t.ArrayType(items)
    if kind == "map":
        return t.MapType(t.StringType(), _avro(schema["values"], named, inside))
    if kind == "fixed" and schema["size"] < 1:
        raise InvalidOption(f"avroSchema: fixed {schema['name']} has no bytes")
    if logical == "decimal":
        return t.DecimalType(schema["precision"], schema.get("scale", 0))
    if isinstance(kind, dict | list) or kind in named:
        return _avro(kind, named, inside)
    return _AVRO_LOGICAL.get((kind, logical or ""), _AVRO[kind])


def _takes_no_bytes(of_type: t.DataType) -> bool:
    """Whether a count of such values alone could be endless data."""
    if isinstance(of_type, t.StructType):
        return all(_takes_no_bytes(field.dataType) for field in of_type.fields)
    return isinstance(of_type, t.NullType)


def _avro_union(schema: list[Any], named: dict[str, Any], inside: tuple[str, ...]) -> t.DataType:
    """One type beside null, or two numbers of which the wider holds both."""
    others = [one for one in schema if one != "null"]
    if len(others) == 1:
        return _avro(others[0], named, inside)
    plain = frozenset(one for one in others if isinstance(one, str))
    if len(plain) == len(others) and plain in _WIDER:
        return _AVRO[_WIDER[plain]]
    raise InvalidOption(f"avroSchema: the union {schema} is of several types; Spark has no such type")
