"""Arrow's types of Avro values, as Spark's own Avro source maps them, and what of a schema has no bound.

A schema may be a stranger's, out of a registry: it is walked with a budget, since a few names that hold each other
twice make as many types as a power of two.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pyarrow as pa

from ipc.extras import ExtraMissing
from spark_bridge.options.value_types import LOCAL_TIMESTAMP, TIMESTAMP, array_of, map_of
from spark_bridge.options.values import InvalidOption, json_value
from spark_bridge.registry.answers import AVRO, Registered
from spark_bridge.registry.errors import SchemaUnusable
from spark_bridge.registry.schemas import Schemas

TYPES_MAX = 10_000  # of one schema, each as often as it is held
_PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "bytes": pa.binary(), "enum": pa.string(), "fixed": pa.binary(), "null": pa.null(),
}  # fmt: skip
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-millis"): LOCAL_TIMESTAMP,
    ("long", "local-timestamp-micros"): LOCAL_TIMESTAMP,
}
_WIDER = {
    frozenset({"int", "long"}): "long",
    frozenset({"float", "double"}): "double",
}


def avro_type(option: str, text: str) -> pa.DataType:
    """The type of values of an Avro schema. Raises InvalidOption."""
    named: dict[str, Any] = {}
    try:
        schema = parsed_schema(json_value(option, text, "give an Avro schema as JSON"), named)
        refuse_endless(schema, named)
        return _Types(option, named).of(schema)
    except (InvalidOption, ExtraMissing):
        raise
    except SchemaUnusable as error:
        raise InvalidOption(f"{option}: {error}") from error
    except Exception as error:  # whatever the library finds wrong with it
        raise InvalidOption(f"{option}={text[:1000]!r} ({error!r}): an Avro schema as JSON") from error


def parsed_schema(schema: Any, named: dict[str, Any]) -> Any:
    """fastavro's form of a schema, in which every name is whole; adds what it defines to `named`."""
    try:
        from fastavro.schema import parse_schema
    except ImportError as error:
        raise ExtraMissing("decode=avro", "fastavro", "spark") from error
    return parse_schema(schema, named)


class _Types:
    """The types of one schema's values, and of those that it names."""

    def __init__(self, option: str, named: dict[str, Any]) -> None:
        self._option, self._named = option, named

    def of(self, schema: Any) -> pa.DataType:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str) and schema in self._named:
            return self.of(self._named[schema])
        kind, logical = (schema, None) if isinstance(schema, str) else (schema["type"], schema.get("logicalType"))
        if kind in ("record", "error"):
            return pa.struct([(one["name"], self.of(one["type"])) for one in schema["fields"]])
        if kind == "array":
            return array_of(self.of(schema["items"]))
        if kind == "map":
            return map_of(self.of(schema["values"]))
        if kind == "fixed" and schema["size"] < 1:
            raise InvalidOption(f"{self._option}: fixed {schema['name']} has no bytes")
        if logical == "decimal":
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        if isinstance(kind, dict | list) or kind in self._named:
            return self.of(kind)
        return _LOGICAL.get((kind, logical or ""), _PLAIN[kind])

    def _union(self, schema: list[Any]) -> pa.DataType:
        """Return the type of a union: one type beside null, or two numbers of which the wider holds both."""
        others = [one for one in schema if one != "null"]
        if len(others) == 1:
            return self.of(others[0])
        plain = frozenset(one for one in others if isinstance(one, str))
        if len(plain) == len(others) and plain in _WIDER:
            return _PLAIN[_WIDER[plain]]
        raise InvalidOption(f"{self._option}: the union {str(schema)[:400]} is of several types, which Spark lacks")


def refuse_endless(schema: Any, named: dict[str, Any]) -> None:
    """Raise SchemaUnusable for a schema that holds itself, more types than are read, or data without a bound.

    `schema` and `named` are as `parsed_schema` has them; a writer's is looked at, too, since what a reader does not
    want has to be passed over.
    """
    left = TYPES_MAX

    def takes_bytes(one: Any, inside: frozenset[str]) -> bool:
        """Whether a value takes any; a count of others alone would be endless data."""
        nonlocal left
        left -= 1
        if left < 0:
            raise SchemaUnusable(f"a schema of more than {TYPES_MAX} types")
        if isinstance(one, list):
            for branch in one:
                takes_bytes(branch, inside)
            return True
        name = one if isinstance(one, str) else one.get("name")
        if name in named and name is not None:
            if name in inside:
                raise SchemaUnusable(f"{name} holds itself; Spark has no such type")
            one, inside = named[name], inside | {name}
        kind = one if isinstance(one, str) else one["type"]
        if isinstance(kind, dict | list):
            return takes_bytes(kind, inside)
        if kind in ("record", "error"):
            of_fields = [takes_bytes(field["type"], inside) for field in one["fields"]]
            return any(of_fields)
        if kind == "array" and not takes_bytes(one["items"], inside):
            raise SchemaUnusable("an array whose items take no bytes has no bound")
        if kind == "map":
            takes_bytes(one["values"], inside)
        return kind != "null" and not (kind == "fixed" and one["size"] < 1)

    takes_bytes(schema, frozenset())


def self_contained(schemas: Schemas, schema: Registered, what: str) -> str:
    """A registered Avro schema as JSON that needs no other. Raises SchemaUnusable, and what asking raises."""
    if schema.kind != AVRO:
        raise SchemaUnusable(f"{what} is of kind {schema.kind}, the bodies are read as Avro")
    if not schema.references:
        return schema.text
    named: dict[str, Any] = {}
    try:
        for _reference, other in schemas.referred(schema):
            parsed_schema(json.loads(other.text), named)
        main = parsed_schema(json.loads(schema.text), named)
        refuse_endless(main, named)
        return json.dumps(_with_definitions(main, named, set()))
    except (SchemaUnusable, ExtraMissing):
        raise
    except Exception as error:  # whatever the library finds wrong with it
        raise SchemaUnusable(f"{what} is not an Avro schema with its references: {str(error)[:200]}") from error


def _with_definitions(schema: Any, named: dict[str, Any], defined: set[str]) -> Any:
    """The schema with each name's definition where it stands first."""
    if isinstance(schema, list):
        return [_with_definitions(one, named, defined) for one in schema]
    if isinstance(schema, str):
        if schema not in named or schema in defined:
            return schema
        return _with_definitions(named[schema], named, defined)
    if schema.get("name") in named:
        if schema["name"] in defined:
            return schema["name"]
        defined.add(schema["name"])
    whole = {name: copy.deepcopy(part) for name, part in schema.items() if not name.startswith("__")}
    for part in ("type", "items", "values"):
        if part in whole and not (part == "type" and whole["type"] in ("record", "error", "enum", "fixed")):
            whole[part] = _with_definitions(schema[part], named, defined)
    if "fields" in whole:
        types = [_with_definitions(field["type"], named, defined) for field in schema["fields"]]
        whole["fields"] = [{**field, "type": kind} for field, kind in zip(schema["fields"], types, strict=True)]
    return whole
