"""Makes values of what Arrow reads of JSON: times, dates, binary values and maps by the rules of Spark's `from_json`.

Arrow reads a time of JSON in a form of its own, and no object as a map. So these types are read as texts, and as lists
of keys and values, and are made of them here; a JSON number where a time is wanted counts seconds, as in Spark.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from spark_bridge.options.value_types import LOCAL_TIMESTAMP, TEXT, TIMESTAMP, holds
from spark_bridge.records.formats.time_texts import days_of, local_micros_of, micros_of

KEY, VALUE = "key", "value"
_DAY = r"(?:19|20)\d\d-\d\d-\d\d"
_CLOCK = r"[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?"
DAY, LOCAL, ZONED = f"^{_DAY}$", f"^{_DAY}(?:{_CLOCK})?$", rf"^{_DAY}{_CLOCK}(?:Z|[+-](?:0\d|1[0-7]):[0-5]\d)$"
BLANKS_OF_BASE64 = dict.fromkeys(range(0x21))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_made(kind: pa.DataType) -> bool:
    """Whether values of that type alone, not of those inside, are made here."""
    return kind in (TIMESTAMP, LOCAL_TIMESTAMP, pa.date32(), pa.binary()) or bool(pa.types.is_map(kind))


def read_as(kind: pa.DataType) -> pa.DataType:
    """The type that Arrow is to read for it."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(read_as(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(read_as(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.list_(pa.struct([pa.field(KEY, TEXT), pa.field(VALUE, read_as(kind.item_type))]))
    return TEXT if is_made(kind) else kind


def made(read: pa.Array, kind: pa.DataType, zone: tzinfo) -> pa.Array:
    """Return the values of what Arrow read. Raises ValueError, which names the first invalid text."""
    if not holds(kind, is_made):
        return read
    if read.offset:
        read = pa.concat_arrays([read])
    if pa.types.is_struct(kind):
        fields = [made(read.field(number), field.type, zone) for number, field in enumerate(kind)]
        return pa.Array.from_buffers(kind, len(read), read.buffers()[:1], children=fields)
    if pa.types.is_list(kind):
        values = made(read.values, kind.value_type, zone)
        return pa.Array.from_buffers(kind, len(read), read.buffers()[:2], children=[values])
    if pa.types.is_map(kind):
        items = read.values
        pairs = [items.field(KEY), made(items.field(VALUE), kind.item_type, zone)]
        entries = pa.StructArray.from_arrays(pairs, fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(read), read.buffers()[:2], children=[entries])
    if kind == TIMESTAMP:
        return _times(read, zone)
    if kind == LOCAL_TIMESTAMP:
        return _of_texts(read, kind, LOCAL, local_micros_of, "time without a zone")
    if kind == pa.date32():
        return _of_texts(read, kind, DAY, days_of, "date")
    return pa.array([None if text is None else _bytes(text) for text in read.to_pylist()], pa.binary())


def _of_texts(
    texts: pa.StringArray, kind: pa.DataType, plain: str, value_of: Callable[[str], int | None], what: str
) -> pa.Array:
    if _all_match(texts, plain):
        try:
            return pc.cast(texts, kind)
        except pa.ArrowInvalid:  # 2026-02-30
            pass
    numbers = []
    for text in texts.to_pylist():
        numbers.append(None if text is None else value_of(text))
        if text is not None and numbers[-1] is None:
            raise ValueError(f"{text[:80]!r} is no {what}")
    return pa.array(numbers, pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)


def _times(texts: pa.StringArray, zone: tzinfo) -> pa.Array:
    if isinstance(zone, ZoneInfo) and _all_match(texts, LOCAL):
        try:
            return pc.assume_timezone(pc.cast(texts, LOCAL_TIMESTAMP), zone.key, ambiguous="earliest").cast(TIMESTAMP)
        except pa.ArrowInvalid:  # a time that the zone leaves out
            pass
    return _of_texts(texts, TIMESTAMP, ZONED, lambda text: micros_of(text, zone), "time")


def _all_match(texts: pa.StringArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py())


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text.translate(BLANKS_OF_BASE64), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text[:80]!r} is not a binary value in Base64 ({error})") from None


class _Number(str):
    """A number's text, which stays as it is."""


class _Object(list[tuple[str, Any]]):
    """An object's names and values, each as often as it is there."""


def rewritten(text: str, kind: pa.DataType) -> str:
    """A JSON text with lists for maps, and texts for numbers that are times. Raises ValueError, RecursionError."""
    value = json.loads(text, parse_int=_Number, parse_float=_Number, object_pairs_hook=_Object, parse_constant=not_json)
    return _written(value, kind)


def not_json(name: str) -> None:
    """Raise ValueError for NaN and the infinities, which Python's parser takes."""
    raise ValueError(f"{name} is not JSON")


def _written(value: Any, kind: pa.DataType | None) -> str:
    if isinstance(value, _Object):
        if kind is not None and pa.types.is_map(kind):
            if len({name for name, _ in value}) < len(value):
                raise ValueError("an object that is to be a map has a name twice")
            pairs = [f'{{"{KEY}":{json.dumps(name)},"{VALUE}":{_written(one, kind.item_type)}}}' for name, one in value]
            return f"[{','.join(pairs)}]"
        types = {field.name: field.type for field in kind} if kind is not None and pa.types.is_struct(kind) else {}
        written = [f"{json.dumps(name)}:{_written(one, types.get(name))}" for name, one in value]
        return f"{{{','.join(written)}}}"
    if isinstance(value, list):
        if kind is not None and pa.types.is_map(kind):
            raise ValueError("a map is to be an object")
        inner = kind.value_type if kind is not None and pa.types.is_list(kind) else None
        return f"[{','.join(_written(one, inner) for one in value)}]"
    if isinstance(value, _Number):
        return f'"{_time_of(value)}"' if kind == TIMESTAMP else value
    return json.dumps(value)


def _time_of(number: _Number) -> str:
    """The time that is so many seconds after 1970. Raises ValueError."""
    try:
        return (EPOCH + timedelta(seconds=int(number))).isoformat()
    except (ValueError, OverflowError):
        raise ValueError(f"{number[:80]} seconds are no time") from None
