"""Bodies decoded as JSON or Avro into Arrow's types; a body that does not fit is told, and its value is null.

JSON is read by Arrow, all bodies of a batch in one call. That is exact: each body begins with `{` and ends with `}`, a
line feed stands between two, and no JSON string holds one, so every border between bodies lies between whole values,
and as many values as bodies means one each. Where it fails the batch is halved until those that do not fit are found.
Avro goes through fastavro, body by body.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from spark_bridge.options.rows import JSON, RowOptions
from spark_bridge.records.bodies import note
from spark_bridge.records.records import Records
from store.errors import MalformedData

NOBODYS_FIELD = "\x00nobody's"  # a column that no body has: its nulls count the rows, nothing is converted
KEPT_LOGICAL_TYPES = frozenset({
    "date", "decimal", "timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros",
})  # fmt: skip
PARTS_OF_SCHEMAS = ("type", "items", "values", "fields")
SPACE = " \t\r\n"  # of JSON

_Bad = Callable[[int, str], None]


def decoded(records: Records, options: RowOptions) -> pa.Array:
    """The bodies' values, null where `records.errors` tells why. Raises MalformedData unless it may be told."""
    kept: pa.Array | None = records.__dict__.get("_decoded")
    if kept is not None:
        return kept
    bodies, failures = records.body, dict[int, str]()
    if options.decode == JSON:
        values = _json(bodies, options.value_type or pa.string(), failures.__setitem__)
    else:
        values = _avro(bodies, options, failures.__setitem__)
    for row, reason in sorted(failures.items()):
        what = f"{records.place(row)}: its body as {options.decode}"
        note(records, row, MalformedData(what, reason), options)
    records.__dict__["_decoded"] = values
    return values


def _json(bodies: pa.BinaryArray, kind: pa.DataType, bad: _Bad) -> pa.Array:
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
        reason = _no_json(text[row].as_py()) if as_text else "it is no JSON object"
        if reason:
            refuse(row, reason)
    rows = pc.indices_nonzero(objects)
    schema = pa.schema([(NOBODYS_FIELD, pa.null())]) if as_text else pa.schema(list(kind))
    parts = list(_parsed(trimmed.take(rows), rows.to_pylist, 0, schema, refuse))
    place: list[int | None] = [None] * len(bodies)
    if as_text:
        place = [row if row not in refused else None for row in range(len(bodies))] if refused else []
        return text.take(pa.array(place, pa.int64())) if refused else text
    for number, row in enumerate(rows.to_pylist()):
        place[row] = None if row in refused else number
    values = pa.concat_arrays(parts) if parts else pa.array([], kind)
    return values if place == list(range(len(values))) else values.take(pa.array(place, pa.int64()))


def _parsed(
    texts: pa.StringArray, rows: Callable[[], list[int]], first: int, schema: pa.Schema, refuse: _Bad
) -> Iterator[pa.StructArray]:
    """The texts' values, as many as texts; one that cannot be read becomes nulls, and is refused under its row."""
    if not len(texts):
        return
    joined = pc.binary_join_element_wise(texts, pa.scalar(""), "\n")
    _, ends, data = joined.buffers()
    data = data[: int(np.frombuffer(ends, np.int32)[len(joined)])]
    options = pa_json.ParseOptions(explicit_schema=schema, newlines_in_values=True, unexpected_field_behavior="ignore")
    reading = pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1)
    try:
        table = pa_json.read_json(pa.BufferReader(data), reading, options)
        reason = "" if len(table) == len(texts) else f"it holds {len(table)} values"
    except pa.ArrowException as error:
        reason = str(error).removeprefix("JSON parse error: ").removesuffix(" in row 0")
    if not reason:
        columns = [table.column(field.name).combine_chunks() for field in schema]
        yield pa.StructArray.from_arrays(columns, fields=list(schema))
    elif len(texts) == 1:
        refuse(rows()[first], reason)
        yield pa.nulls(1, pa.struct(list(schema)))
    else:
        half = len(texts) // 2
        yield from _parsed(texts[:half], rows, first, schema, refuse)
        yield from _parsed(texts[half:], rows, first + half, schema, refuse)


def _as_text(bodies: pa.BinaryArray, bad: _Bad) -> pa.StringArray:
    try:
        return bodies.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_utf8(row, body, bad) for row, body in enumerate(bodies.to_pylist())], pa.string())


def _utf8(row: int, body: bytes | None, bad: _Bad) -> str | None:
    try:
        return None if body is None else body.decode()
    except UnicodeDecodeError as error:
        bad(row, f"it is no UTF-8 ({error.reason} at byte {error.start})")
        return None


def _no_json(text: str) -> str:
    """Why a text that is no JSON object is no JSON at all; empty when it is."""
    try:
        json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _avro(bodies: pa.BinaryArray, options: RowOptions, bad: _Bad) -> pa.Array:
    """Values of the Avro schema, each the whole of its body."""
    from fastavro import schemaless_reader

    kind = options.value_type or pa.string()
    schema = _avro_schema(options.avro_schema or "")
    values: list[Any] = []
    for row, body in enumerate(bodies.to_pylist()):
        value = None
        if body is not None:
            stream = io.BytesIO(body)
            try:
                value = schemaless_reader(stream, schema, None)
                if stream.tell() != len(body):
                    raise ValueError(f"{len(body) - stream.tell()} bytes are left over")
            except Exception as error:  # the library raises whatever the bytes lead it to
                bad(row, f"{type(error).__name__}: {error}".rstrip(": "))
                value = None
        values.append(value)
    return pa.concat_arrays(list(_converted(values, 0, kind, bad)) or [pa.array([], kind)])


def _converted(values: list[Any], first: int, kind: pa.DataType, bad: _Bad) -> Iterator[pa.Array]:
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


@lru_cache(maxsize=8)
def _avro_schema(text: str) -> Any:
    """fastavro's form of a schema, without the logical types that Spark takes as plain numbers and texts."""
    from fastavro.schema import parse_schema

    return parse_schema(_plain(json.loads(text)))


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _plain(value) if name in PARTS_OF_SCHEMAS else value for name, value in schema.items()}
    if kept.get("logicalType") not in KEPT_LOGICAL_TYPES:
        kept.pop("logicalType", None)
    return kept
