"""Avro bodies as values: by the reader's schema alone, or each by the schema of its writer, resolved to the reader's.

fastavro takes logical types (times, decimals) as the *writer's* schema says, and leaves numbers alone where that says
nothing. So before it reads, the writer's schema gets the reader's logical types where both are of one type; where they
contradict each other (milliseconds, microseconds) the schema is refused: nothing is read a thousand times too large.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from spark_bridge.options.avro_types import parsed_schema, refuse_endless
from spark_bridge.registry.errors import SchemaUnusable

KEPT_LOGICAL_TYPES = frozenset({
    "date", "decimal", "timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros",
})  # fmt: skip
PARTS_OF_SCHEMAS = ("type", "items", "values", "fields")
LOGICAL_PARTS = ("logicalType", "precision", "scale")
PROMOTIONS = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",),
              "string": ("bytes",), "bytes": ("string",)}  # fmt: skip
Reader = Callable[[bytes], Any]


def avro_reader(reader: str, writer: str | None = None) -> Reader:
    """Return what makes a value of a whole body; raises whatever its bytes lead the library to.

    Raises SchemaUnusable for a writer's schema that does not go with the reader's.
    """
    from fastavro import schemaless_reader

    schemas = (_plain_schema(reader), None) if writer is None or writer == reader else _resolved(writer, reader)

    def value(body: bytes) -> Any:
        stream = io.BytesIO(body)
        made = schemaless_reader(stream, *schemas)
        if stream.tell() != len(body):
            raise ValueError(f"{len(body) - stream.tell()} bytes are left over")
        return made

    return value


@lru_cache(maxsize=8)
def _plain_schema(text: str) -> Any:
    """fastavro's form of a schema, without the logical types that Spark takes as plain numbers and texts."""
    return parsed_schema(_plain(json.loads(text)), {})


@lru_cache(maxsize=64)
def _resolved(writer: str, reader: str) -> tuple[Any, Any]:
    """A writer's schema with the reader's logical types, and the reader's with defaults as values."""
    named: dict[str, Any] = {}
    readers: dict[str, Any] = {}
    read_as = parsed_schema(_plain(json.loads(reader)), readers)
    try:
        written = parsed_schema(_plain(json.loads(writer)), named)
        refuse_endless(written, named)
        written = parsed_schema(_Graft(named, readers).of(written, read_as), {})
    except SchemaUnusable:
        raise
    except Exception as error:  # whatever the library finds wrong with it
        raise SchemaUnusable(f"not an Avro schema ({type(error).__name__}: {str(error)[:200]})") from error
    _set_defaults(read_as, readers)
    for one in readers.values():
        _set_defaults(one, readers)
    return written, read_as


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _plain(value) if name in PARTS_OF_SCHEMAS else value for name, value in schema.items()}
    if kept.get("logicalType") not in KEPT_LOGICAL_TYPES:
        kept.pop("logicalType", None)
    return kept


class _Graft:
    """A writer's schema with the reader's logical types, name by name."""

    def __init__(self, named: dict[str, Any], readers: dict[str, Any]) -> None:
        self._named, self._readers = named, readers
        self._made: dict[str, Any] = {}

    def of(self, writer: Any, reader: Any) -> Any:
        """The part of the writer's schema that is read as that part of the reader's, None for one nobody wants."""
        if isinstance(writer, list):
            return [self.of(branch, reader) for branch in writer]
        reader = self._branch(writer, reader)
        if isinstance(writer, str) and writer not in self._named:
            return self._leaf({"type": writer}, reader)
        if isinstance(writer, dict) and isinstance(writer["type"], dict | list):
            return self.of(writer["type"], reader)
        name = writer if isinstance(writer, str) else writer.get("name")
        if name not in self._named:
            return self._whole(writer, reader)
        made = self._whole(self._named[name], reader)
        if name in self._made:
            if self._made[name] != made:
                raise SchemaUnusable(f"{name} is read as two different types; name them apart")
            return name
        self._made[name] = made
        return made

    def _whole(self, writer: dict[str, Any], reader: Any) -> Any:
        whole = {name: part for name, part in writer.items() if not name.startswith("__")}
        reader = reader if isinstance(reader, dict) and reader["type"] == writer["type"] else None
        for part in ("items", "values"):
            if part in whole:
                whole[part] = self.of(whole[part], None if reader is None else reader[part])
        if "fields" in whole:
            fields = whole["fields"]
            whole["fields"] = [{**one, "type": self.of(one["type"], _field_type(one, reader))} for one in fields]
            return whole
        return whole if "items" in whole or "values" in whole else self._leaf(whole, reader)

    def _leaf(self, writer: dict[str, Any], reader: Any) -> Any:
        asked = reader if isinstance(reader, dict) else {"type": reader}
        bare = {name: part for name, part in writer.items() if name not in LOGICAL_PARTS}
        wanted, given = _logical(asked), _logical(writer)
        if wanted is None:
            return bare if len(bare) > 1 else bare["type"]
        if asked["type"] != writer["type"] or (given is not None and given != wanted):
            said = writer["type"] if given is None else given[0]
            raise SchemaUnusable(f"it has {said} where the reader's schema has {wanted[0]} of {asked['type']}")
        return {**bare, **{name: asked[name] for name in LOGICAL_PARTS if name in asked}}

    def _branch(self, writer: Any, reader: Any) -> Any:
        """Return the part of a reader's union that the writer's part is read as, and a name's definition."""
        if isinstance(reader, list):
            kind = _kind(writer, self._named)
            same = [one for one in reader if _kind(one, self._readers) == kind]
            wider = [one for one in reader if _kind(one, self._readers) in PROMOTIONS.get(kind, ())]
            reader = next(iter([*same, *wider]), None)
        if isinstance(reader, dict) and isinstance(reader["type"], dict | list):
            return self._branch(writer, reader["type"])
        return self._readers.get(reader, reader) if isinstance(reader, str) else reader


def _logical(schema: dict[str, Any]) -> tuple[Any, ...] | None:
    if "logicalType" not in schema:
        return None
    return schema["logicalType"], schema.get("precision"), schema.get("scale", 0)


def _kind(schema: Any, named: dict[str, Any]) -> str:
    one = named.get(schema, schema) if isinstance(schema, str) else schema
    while isinstance(one, dict):
        one = one["type"]
    return one if isinstance(one, str) else ""


def _field_type(writer: dict[str, Any], reader: dict[str, Any] | None) -> Any:
    for one in reader["fields"] if reader is not None else ():
        if one["name"] == writer["name"] or writer["name"] in one.get("aliases", ()):
            return one["type"]
    return None


def _set_defaults(schema: Any, readers: dict[str, Any]) -> None:
    """Defaults as reading makes values: JSON has no bytes, no times. Those of names are done by their own turn."""
    if isinstance(schema, list):
        for one in schema:
            _set_defaults(one, readers)
    if not isinstance(schema, dict):
        return
    for part in ("type", "items", "values"):
        _set_defaults(schema.get(part), readers)
    for one in schema.get("fields", ()):
        _set_defaults(one["type"], readers)
        if "default" in one and not one.get("__made"):
            one["default"], one["__made"] = _default(one["type"], one["default"], readers), True


def _default(schema: Any, value: Any, readers: dict[str, Any]) -> Any:
    from fastavro.read import LOGICAL_READERS

    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        return None if value is None or not others else _default(others[0], value, readers)
    one = readers.get(schema, schema) if isinstance(schema, str) else schema
    one = {"type": one} if isinstance(one, str) else one
    kind = one["type"]
    if isinstance(kind, dict | list):
        return _default(kind, value, readers)
    if kind in ("record", "error"):
        given = {field["name"]: value.get(field["name"], field.get("default")) for field in one["fields"]}
        return {field["name"]: _default(field["type"], given[field["name"]], readers) for field in one["fields"]}
    if kind == "array":
        return [_default(one["items"], item, readers) for item in value]
    if kind == "map":
        return {key: _default(one["values"], item, readers) for key, item in value.items()}
    made = value.encode("iso-8859-1") if kind in ("bytes", "fixed") else value
    logical = LOGICAL_READERS.get(f"{kind}-{one.get('logicalType')}")
    return made if logical is None else logical(made, one, None)
