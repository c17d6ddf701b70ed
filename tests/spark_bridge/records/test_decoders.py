"""Bodies decoded: JSON and Avro values of every type, and bodies that do not fit, told one by one."""

from __future__ import annotations

import datetime as dt
import io
import json
import zlib
from decimal import Decimal
from pathlib import Path

import fastavro
import pytest
from fastavro.schema import parse_schema
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_type

from spark_bridge.options.rows import RowOptions, parse_row_options
from spark_bridge.options.values import InvalidOption
from spark_bridge.records.spark_schema import schema_of, settled
from spark_bridge.split.splits import Selection, plan
from store.errors import MalformedData
from tests.spark_bridge.stores import Row, SmallStore, read_rows

POINT = t.StructType([t.StructField("x", t.IntegerType()), t.StructField("s", t.StringType())])


def options(mode: str = "permissive", **given: str) -> RowOptions:
    return parse_row_options({"mode": mode, **given})


def decoded(directory: Path, bodies: list[bytes], rows: RowOptions, column: str = "body") -> list[Row]:
    store = SmallStore(directory, 1 << 14)
    for body in bodies:
        store.put("t", body)
    names = ["physicalOffset", "topic", "_error", column]
    return read_rows(plan(store.extent(), [], frozenset(), Selection(), None, 1), names, rows)


def test_json_of_every_type(tmp_path):
    ddl = (
        "b boolean, i1 tinyint, i2 smallint, i4 int, i8 bigint, f float, d double, s string, n decimal(10,2),"
        " t timestamp, a array<int>, o struct<x: int, y: array<struct<z: string>>>, missing string"
    )
    value = {
        "b": True,
        "i1": -128,
        "i2": 32767,
        "i4": 1,
        "i8": 1 << 62,
        "f": 0.5,
        "d": 1e300,
        "s": "ü\n\u4e2d",
        "n": 12.5,
        "t": "2026-11-21T10:20:30.123456Z",
        "a": [1, None],
        "o": {"x": 1, "y": [{"z": "q"}, {}]},
        "more": {"x": [1]},
    }
    compact, pretty = json.dumps(value).encode(), b"\n " + json.dumps(value, indent=2).encode() + b"\n"
    for column, schema in (("body", "rocketmq"), ("value", "kafka")):
        given = options("failfast", decode="json", valueSchema=ddl, schema=schema)
        rows = decoded(tmp_path / column, [compact, b"{}", pretty], given, column)
        time = dt.datetime(2026, 11, 21, 10, 20, 30, 123456, dt.UTC)
        expected = {**value, "n": Decimal("12.50"), "t": time, "missing": None}
        expected["o"] = {"x": 1, "y": [{"z": "q"}, {"z": None}]}
        del expected["more"]
        assert [row[column] for row in rows] == [expected, dict.fromkeys(expected), expected]


BAD_JSON = [
    b"", b" ", b"no", b"[1]", b"1", b'{"x":1', b'{"x":"1"}', b'{"x":1.5}', b'{"x":4000000000}', b'{"x":1}{"x":2}',
    b'{"x":1}\n{"x":2}', b'{"s":"\xff"}', b'{"s":"a\nb"}', b'{"s":1}', b'{"x":1}}', b'{"x":nan}', b'{"s":"}', b'{"}',
    b'{"x":1,"x":2}', b'{"s":"\\ud83d"}', b"\xff\xfe{}", b'{"x":[1]}',
]  # fmt: skip


@pytest.mark.parametrize("body", BAD_JSON)
def test_json_that_does_not_fit_is_reported_and_its_neighbours_are_read(tmp_path, body):
    good = b'{"x":1,"s":"a"}'
    rows = decoded(tmp_path / "told", [good, body, good], options(decode="json", valueSchema="x int, s string"))
    assert [row["body"] for row in rows] == [{"x": 1, "s": "a"}, None, {"x": 1, "s": "a"}]
    assert [row["topic"] for row in rows] == ["t"] * 3
    (told,) = [row["_error"] for row in rows if row["_error"]]
    assert f"record at offset {rows[1]['physicalOffset']}: its body as json: " in told
    with pytest.raises(MalformedData, match="its body as json"):
        decoded(tmp_path / "raised", [good, body], options("failfast", decode="json", valueSchema="x int, s string"))


def test_a_number_that_a_decimal_has_no_room_for_does_not_fit(tmp_path):
    bodies = [b'{"n":12345}', b'{"n":999.99}', b'{"n":-1000}', b'{"o":[{"n":10}]}', b'{"o":[{"n":9}]}']
    given = options(decode="json", valueSchema="n decimal(5,2), o array<struct<n: decimal(1,0)>>")
    rows = decoded(tmp_path, bodies, given)
    assert "its body as json: Decimal value 1234500 does not fit in precision" in rows[0]["_error"]
    values = [row["body"] for row in rows]
    assert values == [None, {"n": Decimal("999.99"), "o": None}, None, None, {"n": None, "o": [{"n": Decimal(9)}]}]


def test_bodies_that_make_as_many_values_as_bodies_only_together_are_all_reported(tmp_path):
    bodies = [b'{"s":"}', b'{"}', b'{"x":1}{"x":2}']
    rows = decoded(tmp_path, bodies, options(decode="json", valueSchema="x int, s string"))
    assert [row["body"] for row in rows] == [None] * 3
    assert all(row["_error"] for row in rows)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([*BAD_JSON, b'{"x":1}', b'{"x":2,"s":"{}"}', b' {"s":"b"}\r\n']), max_size=14))
def test_what_a_body_says_does_not_depend_on_its_neighbours(tmp_path_factory, bodies):
    rows = options(decode="json", valueSchema="x int, s string")
    together = decoded(tmp_path_factory.mktemp("together"), bodies, rows)
    alone = [decoded(tmp_path_factory.mktemp("alone"), [body], rows)[0] for body in bodies]
    assert [row["body"] for row in together] == [row["body"] for row in alone]
    assert [row["_error"] is None for row in together] == [row["_error"] is None for row in alone]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.none() | st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.text(max_size=20)), max_size=20))
def test_every_json_text_comes_back(tmp_path_factory, values):
    bodies = [json.dumps({"x": v[0], "s": v[1]}).encode() if v else b"{}" for v in values]
    given = options("failfast", decode="json", valueSchema="x int, s string")
    rows = decoded(tmp_path_factory.mktemp("store"), bodies, given)
    assert [row["body"] for row in rows] == [{"x": v[0], "s": v[1]} if v else {"x": None, "s": None} for v in values]


def test_json_without_a_schema_is_checked_text(tmp_path):
    bodies = [b'{"a":[1,{"b":null}]}', b"[1,2]", b' "text"', b"3", b"null", b"", b"{", b"nan", b'{"a":1}{}', b"\xff"]
    rows = decoded(tmp_path, bodies, options(decode="json"))
    good = [body.decode() for body in bodies[:5]]
    assert [row["body"] for row in rows] == [*good, *[None] * 5]
    assert [row["_error"] is None for row in rows] == [True] * 5 + [False] * 5


def test_the_schema_given_to_spark_tells_the_type_of_json_bodies() -> None:
    rows = parse_row_options({"decode": "json"})
    given = t.StructType([t.StructField("topic", t.StringType()), t.StructField("body", POINT)])
    assert settled(given, rows).value_type == to_arrow_type(POINT, timezone="UTC")
    assert schema_of(["body"], settled(given, rows))["body"].dataType == POINT
    assert settled(schema_of(["body"], rows), rows) == rows
    of_numbers = t.MapType(t.IntegerType(), t.StringType())
    for wrong in (t.LongType(), t.StructType([t.StructField("m", of_numbers)])):
        with pytest.raises(InvalidOption, match="column body"):
            settled(t.StructType([t.StructField("body", wrong)]), rows)
    typed = parse_row_options({"decode": "json", "valueSchema": "x int"})
    with pytest.raises(InvalidOption, match="column body is struct<x:int>"):
        settled(t.StructType([t.StructField("body", POINT)]), typed)


AVRO_FIELDS = [
    ("s", "string"),
    ("l", "long"),
    ("b", "bytes"),
    ("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
    ("f", {"type": "fixed", "name": "F", "size": 4}),
    ("n", ["null", "int"]),
    ("w", ["int", "long"]),
    ("a", {"type": "array", "items": "double"}),
    ("m", {"type": "map", "values": "boolean"}),
    ("ms", {"type": "long", "logicalType": "timestamp-millis"}),
    ("d", {"type": "int", "logicalType": "date"}),
    ("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
    ("dec", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ("again", "F"),
    ("day", {"type": "int", "logicalType": "time-millis"}),
    ("id", {"type": "string", "logicalType": "uuid"}),
]
AVRO = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in AVRO_FIELDS],
    }
)
AVRO_POINT = json.dumps(
    {
        "type": "record",
        "name": "P",
        "fields": [
            {"name": "x", "type": "int"},
            {"name": "t", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        ],
    }
)


def avro(schema: str, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parse_schema(json.loads(schema)), value)
    return out.getvalue()


def test_avro_of_every_type(tmp_path):
    zone = dt.UTC
    value = {
        "s": "ü",
        "l": 1 << 62,
        "b": b"\xff",
        "e": "B",
        "f": b"abcd",
        "n": None,
        "w": 1 << 40,
        "a": [0.5],
        "m": {"k": True},
        "ms": dt.datetime(2026, 1, 2, 3, 4, 5, 678000, zone),
        "d": dt.date(2026, 1, 2),
        "local": dt.datetime(2026, 1, 2, 3, 4, 5, 6),
        "dec": Decimal("-1.25"),
        "again": b"\0\1\2\3",
        "day": dt.time(0, 0, 1),
        "id": "7f3c9f6e-5d8a-4f0e-9a2c-1b2d3e4f5a6b",
    }
    (row,) = decoded(tmp_path, [avro(AVRO, value)], options("failfast", decode="avro", avroSchema=AVRO))
    assert row["body"] == {**value, "m": [("k", True)], "day": 1000}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\x02", b"\x02\x04", b"\xff" * 20, b"\x02\x00\x00", b"\x02\x02" + b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        avro('"long"', 1 << 40), b"\x02\x09",
    ],
)  # fmt: skip
def test_avro_that_does_not_fit_is_reported_and_its_neighbours_are_read(tmp_path, body):
    good = avro(AVRO_POINT, {"x": 1, "t": None})
    rows = decoded(tmp_path / "told", [good, body, good], options(decode="avro", avroSchema=AVRO_POINT))
    assert [row["body"] for row in rows] == [{"x": 1, "t": None}, None, {"x": 1, "t": None}]
    assert [row["_error"] is None for row in rows] == [True, False, True]
    with pytest.raises(MalformedData, match="its body as avro"):
        decoded(tmp_path / "raised", [body], options("failfast", decode="avro", avroSchema=AVRO_POINT))


def test_avro_values_that_are_no_records(tmp_path):
    bodies = [avro('"long"', number) for number in (1, -5, 1 << 60)]
    rows = decoded(tmp_path, bodies, options("failfast", decode="avro", avroSchema='"long"', schema="kafka"), "value")
    assert [row["value"] for row in rows] == [1, -5, 1 << 60]


def test_what_is_compressed_is_decoded_from_what_was_sent(tmp_path):
    store = SmallStore(tmp_path)
    store.put("t", zlib.compress(b'{"x":5}'), sys_flag=1)
    store.put("t", b"broken", sys_flag=1)
    splits = plan(store.extent(), [], frozenset(), Selection(), None, 1)
    rows = read_rows(splits, ["body", "_error"], options(decode="json", valueSchema="x int"))
    assert [row["body"] for row in rows] == [{"x": 5}, None]
    assert "MALFORMED_DATA" in rows[1]["_error"]
    assert "json" not in rows[1]["_error"]
