"""Bodies decoded as JSON, Avro or Protobuf into Arrow's types; a body that does not fit is reported, its value is null.

JSON is read by Arrow, all bodies of a batch in one call. That is exact: each body begins with `{` and ends with `}`, a
line feed stands between two, and no JSON string holds one, so every border between bodies lies between whole values,
and as many values as bodies means one each. Where it fails the batch is halved until those that do not fit are found.
What Arrow reads otherwise than Spark does, `json_values` makes.
Avro goes through fastavro, Protobuf through its own library, body by body. With a registry each body says by which
schema it was written; a number that the registry does not know is that body's fault, a registry that cannot be asked
ends the read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from ipc.extras import ExtraMissing
from spark_bridge.options.avro_types import self_contained
from spark_bridge.options.protobuf_types import MessageType
from spark_bridge.options.rows import AVRO, JSON, RowOptions
from spark_bridge.options.value_types import TIMESTAMP, holds
from spark_bridge.options.zones import UTC_NAME, task_zone, zone_of
from spark_bridge.records.bodies import note
from spark_bridge.records.formats.avro_bodies import avro_reader
from spark_bridge.records.formats.json_values import is_made, made, not_json, read_as, rewritten
from spark_bridge.records.formats.protobuf_bodies import protobuf_reader, refusal
from spark_bridge.records.formats.wire_form import Bad, framed, message_indexes
from spark_bridge.registry.answers import JSON as JSON_SCHEMA
from spark_bridge.registry.errors import RegistryError, SchemaUnknown, SchemaUnusable
from spark_bridge.registry.place import RegistryPlace
from spark_bridge.registry.schemas import schemas_of
from store.columns.records import Records
from store.errors import MalformedData

NOBODYS_FIELD = "\x00nobody's"  # a column that no body has: its nulls count the rows, nothing is converted
SPACE = " \t\r\n"  # of JSON
PART_BYTES = 1 << 20  # of bodies whose values are Python's objects at one time


def decoded(records: Records, options: RowOptions) -> pa.Array:
    """Return the bodies' values, null where `records.errors` has the reason. Raises MalformedData unless permissive."""
    kept: pa.Array | None = records.__dict__.get("_decoded")
    if kept is not None:
        return kept
    failures = dict[int, str]()
    values = decoded_bodies(records.body, options, failures)
    for row, reason in sorted(failures.items()):
        what = f"{records.place(row)}: its body as {options.decode}"
        note(records, row, MalformedData(what, reason), options)
    records.__dict__["_decoded"] = values
    return values


def decoded_bodies(bodies: pa.BinaryArray, options: RowOptions, failures: dict[int, str]) -> pa.Array:
    """Values of the type that options say, null where `failures` gets why, by row. Raises RegistryError."""
    bad = failures.__setitem__
    if options.decode == JSON:
        values = bodies if options.registry is None else _unframed(bodies, options.registry, bad)
        return _json(values, options.value_type or pa.string(), _zone(options), bad)
    return _values(bodies, options, bad)


def _zone(options: RowOptions) -> str:
    """The zone of times without one."""
    return options.time_zone or task_zone() or options.local_zone or UTC_NAME


def _json(bodies: pa.BinaryArray, kind: pa.DataType, zone: str, bad: Bad) -> pa.Array:
    """Structs of the type, or the JSON texts themselves where a string is wanted."""
    text = _as_text(bodies, bad)
    trimmed = pc.utf8_trim(text, SPACE)
    objects = pc.fill_null(pc.and_(pc.starts_with(trimmed, "{"), pc.ends_with(trimmed, "}")), False)
    as_text = pa.types.is_string(kind)
    refused: set[int] = set()

    def refuse(row: int, reason: str) -> None:
        refused.add(row)
        bad(row, reason)

    for row in pc.indices_nonzero(pc.and_(pc.invert(objects), text.is_valid())).to_pylist():
        reason = _no_json(text[row].as_py()) if as_text else "it is not a JSON object"
        if reason:
            refuse(row, reason)
    rows = pc.indices_nonzero(objects)
    values_of = _Reader(pa.struct([(NOBODYS_FIELD, pa.null())]) if as_text else kind, zone)
    parts = list(_parsed(values_of.prepared(trimmed.take(rows)), rows.to_pylist, 0, values_of, refuse))
    place: list[int | None] = [None] * len(bodies)
    if as_text:
        place = [row if row not in refused else None for row in range(len(bodies))] if refused else []
        return text.take(pa.array(place, pa.int64())) if refused else text
    for number, row in enumerate(rows.to_pylist()):
        place[row] = None if row in refused else number
    values = pa.concat_arrays(parts) if parts else pa.array([], kind)
    return values if place == list(range(len(values))) else values.take(pa.array(place, pa.int64()))


class _Reader:
    """A function that makes structs of JSON texts, all at once."""

    def __init__(self, kind: pa.DataType, zone: str) -> None:
        self.kind, self._read = kind, pa.schema(list(read_as(kind)))
        self._has_decimals = holds(kind, pa.types.is_decimal)
        self._has_maps, self._has_times = holds(kind, pa.types.is_map), holds(kind, lambda one: one == TIMESTAMP)
        self._is_made = holds(kind, is_made)
        self._refused: dict[str, str] = {}
        self._zone = zone_of(zone) if self._has_times else zone_of(UTC_NAME)

    def prepared(self, texts: pa.StringArray) -> pa.StringArray:
        """The texts as Arrow can read them, where it cannot as they are; those that are no JSON stay."""
        if not self._has_maps and not (self._has_times and isinstance(self.values(texts), str)):
            return texts
        return pa.array([self._rewritten(text) for text in texts.to_pylist()], pa.string())

    def why(self, text: str, reason: str) -> str:
        """Return why a text cannot be read; `reason` is Arrow's."""
        return self._refused.get(text, reason)

    def _rewritten(self, text: str) -> str:
        try:
            return rewritten(text, self.kind)
        except (ValueError, RecursionError) as error:
            self._refused[text] = str(error)
            return text

    def values(self, texts: pa.StringArray) -> pa.StructArray | str:
        """Return as many values as texts, or the reason why not."""
        if not len(texts):
            return pa.array([], self.kind)
        joined = pc.binary_join_element_wise(texts, pa.scalar(""), "\n")
        _, ends, data = joined.buffers()
        data = data[: int(np.frombuffer(ends, np.int32)[len(joined)])]
        options = pa_json.ParseOptions(
            explicit_schema=self._read, newlines_in_values=True, unexpected_field_behavior="ignore"
        )
        reading = pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1)
        try:
            table = pa_json.read_json(pa.BufferReader(data), reading, options)
            if self._has_decimals:  # Arrow makes a decimal(5,2) of 12345, two digits too many
                table.validate(full=True)
            if len(table) != len(texts):
                return f"it holds {len(table)} values"
            columns = [table.column(field.name).combine_chunks() for field in self.kind]
            if self._is_made:
                columns = [made(one, field.type, self._zone) for one, field in zip(columns, self.kind, strict=True)]
        except pa.ArrowException as error:
            return str(error).removeprefix("JSON parse error: ").removesuffix(" in row 0").rpartition("Invalid: ")[2]
        except ValueError as error:
            return str(error)
        return pa.StructArray.from_arrays(columns, fields=list(self.kind))


def _parsed(
    texts: pa.StringArray, rows: Callable[[], list[int]], first: int, reader: _Reader, refuse: Bad
) -> Iterator[pa.StructArray]:
    """The texts' values, as many as texts; one that cannot be read becomes nulls, and is refused under its row."""
    values = reader.values(texts)
    if not isinstance(values, str):
        yield values
    elif len(texts) == 1:
        refuse(rows()[first], reader.why(texts[0].as_py(), values))
        yield pa.nulls(1, reader.kind)
    else:
        half = len(texts) // 2
        yield from _parsed(texts[:half], rows, first, reader, refuse)
        yield from _parsed(texts[half:], rows, first + half, reader, refuse)


def _as_text(bodies: pa.BinaryArray, bad: Bad) -> pa.StringArray:
    try:
        return bodies.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_utf8(row, body, bad) for row, body in enumerate(bodies.to_pylist())], pa.string())


def _utf8(row: int, body: bytes | None, bad: Bad) -> str | None:
    try:
        return None if body is None else body.decode()
    except UnicodeDecodeError as error:
        bad(row, f"it is not UTF-8 ({error.reason} at byte {error.start})")
        return None


def _no_json(text: str) -> str:
    """Return why a text is not JSON at all; empty where it is JSON but not an object."""
    try:
        json.loads(text, parse_constant=not_json)
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""


def _unframed(bodies: pa.BinaryArray, place: RegistryPlace, bad: Bad) -> pa.BinaryArray:
    """The values behind the schemas' numbers, which are schemas of JSON."""
    schemas = schemas_of(place)

    def value(body: bytes) -> bytes:
        schema_id, rest = framed(body)
        kind = schemas.by_id(schema_id).kind
        if kind != JSON_SCHEMA:
            raise SchemaUnusable(f"schema {schema_id} is of kind {kind}, the bodies are read as JSON")
        return rest

    return pa.array([_made(value, row, body, bad) for row, body in enumerate(bodies.to_pylist())], pa.binary())


def _values(bodies: pa.BinaryArray, options: RowOptions, bad: Bad) -> pa.Array:
    """Values of Avro or Protobuf, each the whole of its body; some at a time, as Python's objects are large."""
    kind, value = options.value_type or pa.string(), _reader(options)
    parts = [pa.array([], kind)]
    values: list[Any] = []
    size = first = 0
    for row, body in enumerate(bodies):
        held = body.as_py()
        values.append(_made(value, row, held, bad))
        size += len(held or b"")
        if size > PART_BYTES or row + 1 == len(bodies):
            parts += _converted(values, first, kind, bad)
            values, size, first = [], 0, row + 1
    return pa.concat_arrays(parts)


def _made(value: Callable[[bytes], Any], row: int, body: bytes | None, bad: Bad) -> Any:
    if body is None:
        return None
    try:
        return value(body)
    except (SchemaUnknown, SchemaUnusable) as error:
        bad(row, str(error))
    except (RegistryError, ExtraMissing):
        raise
    except Exception as error:  # the libraries raise whatever the bytes lead them to
        bad(row, f"{type(error).__name__}: {error}".rstrip(": "))
    return None


def _reader(options: RowOptions) -> Callable[[bytes], Any]:
    """Return what makes a value of a body."""
    if options.decode == AVRO:
        schema = options.avro_schema or ""
        return avro_reader(schema) if options.registry is None else _by_writers(schema, options.registry)
    assert options.protobuf is not None
    if options.registry is None:
        return protobuf_reader(options.protobuf)
    return _by_messages(options.protobuf, options.registry)


def _by_writers(reader: str, place: RegistryPlace) -> Callable[[bytes], Any]:
    schemas, readers = schemas_of(place), dict[int, Callable[[bytes], Any]]()

    def value(body: bytes) -> Any:
        schema_id, rest = framed(body)
        if schema_id not in readers:
            what = f"schema {schema_id}"
            written = self_contained(schemas, schemas.by_id(schema_id), what)
            try:
                readers[schema_id] = avro_reader(reader, written)
            except SchemaUnusable as error:
                raise SchemaUnusable(f"{what}: {error}") from error
        return readers[schema_id](rest)

    return value


def _by_messages(message: MessageType, place: RegistryPlace) -> Callable[[bytes], Any]:
    schemas, read = schemas_of(place, serialized=True), protobuf_reader(message)

    def value(body: bytes) -> Any:
        schema_id, rest = framed(body)
        indexes, rest = message_indexes(rest)
        refused = refusal(schemas.by_id(schema_id), indexes, message, f"schema {schema_id}")
        if refused:
            raise SchemaUnusable(refused)
        return read(rest)

    return value


def _converted(values: list[Any], first: int, kind: pa.DataType, bad: Bad) -> Iterator[pa.Array]:
    """Python's values as Arrow's; one that does not fit (a time before year 1, a number too large) becomes null."""
    try:
        yield pa.array(values, kind)
    except (pa.ArrowException, ValueError, OverflowError, TypeError) as error:
        if len(values) == 1:
            bad(first, str(error))
            yield pa.nulls(1, kind)
            return
        half = len(values) // 2
        yield from _converted(values[:half], first, kind, bad)
        yield from _converted(values[half:], first + half, kind, bad)
