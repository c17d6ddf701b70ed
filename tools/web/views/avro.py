"""A body as a value of an Avro schema that the user typed. The schema is the user's, the body anybody's."""

from __future__ import annotations

import io
import json
from typing import Any

from store.reading.log_reader import open_log
from tools.common.message_text import body_shown
from tools.web.state.asked import Asked, Watched
from tools.web.state.console import Json
from tools.web.state.errors import Refused
from tools.web.views.message import TEXT_BYTES_MAX, record_of

DEPTH_MAX = 32
NO_FASTAVRO = "Avro needs the package fastavro: `pip install fastavro`, then restart the console"
LEAST_BYTES = {"null": 0, "float": 4, "double": 8}  # of the other primitive types, enumerations and unions: one


def decoded(store: Watched, said: Json) -> Json:
    """The value, as JSON for people. Raises Refused, Unknown."""
    asked = Asked([store], {name: str(said[name]) for name in ("offset", "inner") if said.get(name) is not None})
    record, inner, number = record_of(store, open_log(store.path), asked)
    body, _problem = body_shown(record if inner is None or number is None else inner[number])
    schema = said.get("schema")
    if not isinstance(schema, str) or not schema.strip():
        raise Refused("paste the Avro schema of the bodies, as JSON")
    if len(body) > TEXT_BYTES_MAX:
        raise Refused(f"the body has {len(body)} bytes; {TEXT_BYTES_MAX} are decoded at most")
    return {"value": json.dumps(value_of(schema, body), indent=2, ensure_ascii=False, default=str)}


def value_of(schema: str, body: bytes) -> Any:
    """The one value that a body is. Raises Refused."""
    try:
        from fastavro import parse_schema, schemaless_reader
    except ImportError as error:
        raise Refused(NO_FASTAVRO) from error
    try:
        written = json.loads(schema)
        least_bytes(written, {}, 0)
        stream = io.BytesIO(body)
        value = schemaless_reader(stream, parse_schema(written), None)
    except Refused:
        raise
    except Exception as error:  # the library raises whatever schema and bytes lead it to
        raise Refused(f"not a value of this schema: {type(error).__name__}: {error}"[:500]) from error
    if stream.tell() != len(body):
        raise Refused(f"not a value of this schema: {len(body) - stream.tell()} bytes are left over")
    return value


def least_bytes(schema: Any, named: dict[str, int], depth: int) -> int:
    """Return how many bytes a value takes at least: a list of what takes none is as long as a body says.

    Raises Refused.
    """
    if depth > DEPTH_MAX:
        raise Refused(f"the schema is nested more than {DEPTH_MAX} levels deep")
    if isinstance(schema, list):
        for each in schema:
            least_bytes(each, named, depth + 1)
        return 1
    if isinstance(schema, str):
        return LEAST_BYTES.get(schema, named.get(schema.rpartition(".")[2], 1))
    if not isinstance(schema, dict):
        raise Refused("not an Avro schema: a name, a list or an object is required")
    kind, name = schema.get("type"), str(schema.get("name", "")).rpartition(".")[2]
    if kind == "fixed":
        named[name] = int(schema.get("size", 0))
        return named[name]
    if kind in ("record", "error"):
        named[name] = 1  # what holds itself takes a union's byte
        named[name] = sum(least_bytes(one.get("type"), named, depth + 1) for one in schema.get("fields", ()))
        return named[name]
    if kind == "array" and least_bytes(schema.get("items"), named, depth + 1) == 0:
        raise Refused("an array with items of zero bytes has no limit")
    if kind == "map":
        least_bytes(schema.get("values"), named, depth + 1)
    return 1 if kind in ("array", "map", "enum") else least_bytes(kind, named, depth + 1)
