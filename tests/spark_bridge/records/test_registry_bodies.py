"""Bodies in Confluent's wire form, made by Confluent's serializers and by Protobuf's and Avro's own libraries."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from fastavro.schema import parse_schema
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_bridge.options.protobuf_types import INLINE
from spark_bridge.options.rows import RowOptions, parse_row_options
from spark_bridge.options.values import InvalidOption
from spark_bridge.records.decoders import decoded_bodies
from spark_bridge.registry.errors import RegistryUnreachable
from spark_bridge.scanning import scan
from store.errors import MalformedData
from tests.spark_bridge.registries import (
    AVRO_BODIES,
    CONFLUENT,
    DESCRIPTORS,
    MONEY,
    PROTOBUF_BODIES,
    SCHEMAS,
    SUBJECTS,
    Registry,
    as_file,
    order,
    serving,
)
from tests.spark_bridge.stores import SmallStore

AT = dt.datetime(2026, 11, 24, 1, 2, 3, 456000, dt.UTC)
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
READER = order(("id", "long"), ("price", MONEY), ("at", MILLIS), ("since", MILLIS, 1000), ("tag", "bytes", "\u00ff"))


def avro_rows(place: object, schema: str = READER) -> RowOptions:
    return parse_row_options({"decode": "avro", "schemaRegistry": str(place), "avroSchema": schema})


def made(bodies: list[bytes | None], rows: RowOptions) -> tuple[list[object], dict[int, str]]:
    failures: dict[int, str] = {}
    values = decoded_bodies(pa.array(bodies, pa.binary()), rows, failures)
    assert values.type == rows.value_type
    return values.to_pylist(), failures


def with_schemas(path: Path, schemas: dict[str, object], subjects: dict[str, object] | None = None) -> Path:
    path.write_text(json.dumps({"schemas": schemas, "subjects": subjects or {}}))
    return path


def test_avro_of_confluents_serializer_is_read_by_each_writers_schema(tmp_path):
    since = dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    expected = [
        {"id": 7, "price": {"currency": "EUR", "units": 12}, "at": AT, "since": since, "tag": b"\xff"},
        {"id": 1 << 40, "price": {"currency": "CHF", "units": -1}, "at": AT, "since": AT, "tag": b"t"},
    ]
    values, failures = made([*AVRO_BODIES, None], avro_rows(as_file(tmp_path / "registry.json")))
    assert (values, failures) == ([*expected, None], {})
    with serving(Registry()) as registry:
        assert made(AVRO_BODIES * 50, avro_rows(registry.url)) == (expected * 50, {})
        assert sorted(registry.asked) == ["/schemas/ids/102", "/schemas/ids/103", "/subjects/money/versions/1"]


def test_the_last_schema_of_a_subject_is_the_readers(tmp_path):
    with serving(Registry()) as registry:
        for place in (registry.url, as_file(tmp_path / "registry.json")):
            rows = parse_row_options({"decode": "avro", "schemaRegistry": str(place), "schemaSubject": "orders-value"})
            values, failures = made(AVRO_BODIES, rows)
            assert [value["note"] for value in values] == [None, "n"]
            assert not failures
            rows = parse_row_options(
                {"decode": "protobuf", "schemaRegistry": str(place), "schemaSubject": "protos-value",
                 "protobufMessage": "shop.Order"}
            )  # fmt: skip
            assert made(PROTOBUF_BODIES, rows)[0][0]["big"] == 2**64 - 1


ORDER = {
    "id": -5,
    "note": "",
    "state": "PAID",
    "weights": [("a", 1.0), ("x", 0.5)],
    "at": AT,
    "big": Decimal(2**64 - 1),
    "lines": [
        {"item": "a", "count": 2**32 - 1, "price": {"currency": "EUR", "units": -3}},
        {"item": "b", "count": 0, "price": None},
    ],
    "raw": b"\xff",
    "card": None,
    "cash": False,
    "numbers": [1, -1],
}
EMPTY = {
    "id": 0, "note": None, "state": "NEW", "lines": [], "weights": [], "at": None, "big": Decimal(0), "raw": b"",
    "card": None, "cash": None, "numbers": [],
}  # fmt: skip


def protobuf_rows(place: object = None, message: str = "shop.Order", data: bytes = DESCRIPTORS) -> RowOptions:
    import zlib

    text = INLINE + base64.b64encode(zlib.compress(data)).decode()
    given = {"decode": "protobuf", "protobufDescriptors": text, "protobufMessage": message}
    return parse_row_options(given if place is None else {**given, "schemaRegistry": str(place)})


def test_protobuf_of_confluents_serializer(tmp_path):
    place = as_file(tmp_path / "registry.json")
    assert made([*PROTOBUF_BODIES, None], protobuf_rows(place)) == ([ORDER, EMPTY, None], {})
    nested, first = (base64.b64decode(CONFLUENT[name]) for name in ("protobuf_nested", "protobuf_first"))
    assert made([nested], protobuf_rows(place, "shop.Order.Line"))[0] == [{"item": "z", "count": 0, "price": None}]
    assert made([first], protobuf_rows(place, "shop.Header")) == ([{"source": "z"}], {})
    values, failures = made([first, nested], protobuf_rows(place))
    assert values == [None, None]
    assert "a message shop.Header of schema 105, not shop.Order" in failures[0]
    assert "shop.Order.Line" in failures[1]


def test_protobuf_without_a_registry_by_a_file(tmp_path):
    path = tmp_path / "orders.desc"
    path.write_bytes(DESCRIPTORS)
    given = {"decode": "protobuf", "protobufDescriptors": str(path), "protobufMessage": "shop.Order"}
    bare = [body[7:] for body in PROTOBUF_BODIES]
    assert made(bare, parse_row_options(given)) == ([ORDER, EMPTY], {})
    bad = [b"\x08", b"\xff" * 30, b"\x12\x02\xff\xfe", b"\x32\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f"]
    values, failures = made([bare[0], *bad, bare[1]], parse_row_options(given))
    assert values == [ORDER, None, None, None, None, EMPTY]
    assert sorted(failures) == [1, 2, 3, 4]
    assert made([b"\x18\x07"], parse_row_options(given))[0][0]["state"] == "7"  # no such number of the enum


@settings(deadline=None, max_examples=60)
@given(st.integers(-(2**63), 2**63 - 1), st.text(max_size=8), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5))
def test_what_protobufs_own_library_writes_comes_back(number, note, numbers):
    pool = descriptor_pool.DescriptorPool()
    for one in descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS).file:
        pool.Add(one)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    body = kind(id=number, note=note, numbers=numbers).SerializeToString()
    assert made([body], protobuf_rows())[0] == [{**EMPTY, "id": number, "note": note, "numbers": numbers}]


FRAMES = [
    b"", b"\0", b"\0\0\0\0", b"\1\0\0\0\x66", b"\0\xff\xff\xff\xff", b"\0\0\0\x0f\xff", b"\0\0\0\0\x69", b"{}",
    b"\0\0\0\0\x69\x80", b"\0\0\0\0\x69\x01", b"\0\0\0\0\x69\x02\x01", b"\0\0\0\0\x69\x02\x10", b"\0\0\0\0\x69\x06\x02",
    b"\0\0\0\0\x69" + b"\xff" * 12, b"\0\0\0\0\x69\xfe\xff\xff\xff\x0f", b"\0\0\0\0\x66\0",
]  # fmt: skip


@pytest.mark.parametrize("body", FRAMES)
def test_a_frame_that_does_not_fit_is_reported_and_its_neighbours_are_read(tmp_path, body):
    place = as_file(tmp_path / "registry.json")
    values, failures = made([PROTOBUF_BODIES[1], body, PROTOBUF_BODIES[1]], protobuf_rows(place))
    assert (values, list(failures)) == ([EMPTY, None, EMPTY], [1])
    values, failures = made([AVRO_BODIES[1], body, AVRO_BODIES[1]], avro_rows(place))
    assert (values[1], list(failures)) == (None, [1])


def test_json_behind_a_schemas_number(tmp_path):
    place = as_file(tmp_path / "registry.json")
    rows = parse_row_options({"decode": "json", "valueSchema": "x int", "schemaRegistry": str(place)})
    values, failures = made([base64.b64decode(CONFLUENT["json"]), AVRO_BODIES[0], None], rows)
    assert values == [{"x": 3}, None, None]
    assert "kind AVRO" in failures[0 + 1]


def framed_avro(schema_id: int, schema: object, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parse_schema(schema), value)
    return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


def of_one(kind: object, name: str = "v") -> dict[str, object]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind}]}


MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}


@pytest.mark.parametrize(
    ("writer", "value", "reader", "expected"),
    [
        ("int", 5, "double", 5.0),
        ("long", 1500, MILLIS, dt.datetime(1970, 1, 1, 0, 0, 1, 500000, dt.UTC)),
        (MILLIS, AT, "long", int(AT.timestamp() * 1000)),
        (MILLIS, AT, ["null", MILLIS], AT),
        (["null", MILLIS, "string"], AT, ["null", MILLIS], AT),
        (MILLIS, AT, MICROS, "timestamp-micros"),
        ("int", 5, MILLIS, "timestamp-millis"),
        ({**DECIMAL, "scale": 3}, Decimal("1.125"), DECIMAL, "decimal"),
        ("bytes", b"\x01\x00", DECIMAL, Decimal("2.56")),
        ({"type": "array", "items": MILLIS}, [AT], {"type": "array", "items": MICROS}, "timestamp-micros"),
        ("string", "x", "int", "SchemaResolutionError"),
        ({"type": "array", "items": "null"}, [None], "int", "no bound"),
        (
            {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]},
            {"n": None},
            "int",
            "holds itself",
        ),
    ],
)
def test_a_writers_schema_is_resolved_or_refused_and_never_read_as_something_else(
    tmp_path, writer, value, reader, expected
):
    body = framed_avro(7, of_one(writer), {"v": value})
    place = with_schemas(tmp_path / "r.json", {"7": {"schema": json.dumps(of_one(writer))}})
    values, failures = made([body], avro_rows(place, json.dumps(of_one(reader))))
    if failures:
        assert isinstance(expected, str)
        assert expected in failures[0]
    else:
        assert values == [{"v": expected}]


def test_names_that_hold_each_other_twice_are_refused_and_not_unfolded(tmp_path):
    kind: object = "int"
    for level in range(60):
        again = f"L{level - 1}" if level else "int"
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": again}]
        kind = {"type": "record", "name": f"L{level}", "fields": fields}
    with pytest.raises(InvalidOption, match="more than 10000 types"):
        parse_row_options({"decode": "avro", "avroSchema": json.dumps(kind)})
    place = with_schemas(tmp_path / "r.json", {"7": {"schema": json.dumps(kind)}})
    assert "more than 10000 types" in made([b"\0\0\0\0\7\0"], avro_rows(place))[1][0]


def test_protobuf_fields_that_became_something_else_are_refused(tmp_path):
    def answer(change: object) -> dict[str, object]:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(SCHEMAS["105"]["schema"]))
        change(file.message_type[1])
        return {"schemaType": "PROTOBUF", "schema": base64.b64encode(file.SerializeToString()).decode()}

    kinds = descriptor_pb2.FieldDescriptorProto

    def set_type(place: int, kind: int) -> object:
        return lambda message: setattr(message.field[place], "type", kind)

    for number, (change, told) in enumerate(
        [
            (set_type(0, kinds.TYPE_STRING), "field 1 is string id, the reader's message has int64 id"),
            (set_type(0, kinds.TYPE_INT32), ""),
            (set_type(6, kinds.TYPE_INT64), "field 7 is int64 big"),
            (
                lambda message: setattr(message.nested_type[0].field[0], "type", kinds.TYPE_INT32),
                "field 1 is int32 item",
            ),
            (lambda message: setattr(message.field[0], "label", kinds.LABEL_REPEATED), "repeated int64 id"),
        ]
    ):
        place = with_schemas(tmp_path / f"{number}.json", {"105": answer(change)})
        _values, failures = made([PROTOBUF_BODIES[1]], protobuf_rows(place))
        assert told in failures.get(0, "")
        assert bool(failures) == bool(told)


def test_a_schema_that_names_a_field_again_and_again_is_refused_before_it_is_unfolded(tmp_path):
    kinds = descriptor_pb2.FieldDescriptorProto
    readers = descriptor_pb2.FileDescriptorProto(name="d.proto", package="d", syntax="proto3")
    for level in range(12):
        message = readers.message_type.add(name=f"M{level}")
        if level < 11:
            message.field.add(name="f", number=1, type=kinds.TYPE_MESSAGE, label=1, type_name=f".d.M{level + 1}")
    rows = descriptor_pb2.FileDescriptorSet(file=[readers]).SerializeToString()
    for message in readers.message_type:
        for _again in range(3 * len(message.field)):
            message.field.append(message.field[0])  # 4 to the power of 11, if each is looked at
    schema = {"schemaType": "PROTOBUF", "schema": base64.b64encode(readers.SerializeToString()).decode()}
    place = with_schemas(tmp_path / "r.json", {"7": schema})
    assert "more than 10000 fields" in made([b"\0\0\0\0\7\0"], protobuf_rows(place, "d.M0", rows))[1][0]


def test_a_registry_that_is_down_ends_the_read_also_where_damage_is_reported(tmp_path):
    store = SmallStore(tmp_path / "store")
    store.put("t", AVRO_BODIES[0])
    with serving(Registry()) as registry:
        given = {"decode": "avro", "avroSchema": READER, "schemaRegistry": registry.url, "mode": "permissive"}
        read = scan(store.root, columns=["body", "_error"], **given)
        assert read.read_all()["body"].to_pylist()[0]["id"] == 7
        registry.subjects = {}
    given["schemaRegistry"] = registry.url + "/other"  # which this process has not asked for anything
    with pytest.raises(RegistryUnreachable, match="3 attempts"):
        scan(store.root, columns=["body", "_error"], **given).read_all()
    given["schemaRegistry"] = str(as_file(tmp_path / "r.json"))
    store.put("t", b"\0\0\0\0\1x")
    rows = scan(store.root, columns=["body", "_error"], **given).read_all()
    assert rows["_error"].to_pylist()[0] is None
    assert "schema 1 is not in this file" in rows["_error"].to_pylist()[1]
    with pytest.raises(MalformedData, match="schema 1 is not in this file"):
        scan(store.root, columns=["body"], **{**given, "mode": "failfast"}).read_all()
    assert SUBJECTS


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"decode": "protobuf"}, "needs protobufDescriptors"),
        ({"decode": "protobuf", "protobufDescriptors": "/nowhere", "protobufMessage": "a.B"}, "No such file"),
        ({"decode": "protobuf", "protobufDescriptors": "base64:%%", "protobufMessage": "a.B"}, "base64:"),
        ({"decode": "avro", "protobufMessage": "a.B", "avroSchema": '"int"'}, "belongs to decode=protobuf"),
        ({"decode": "avro", "schemaSubject": "s", "avroSchema": '"int"'}, "belongs to schemaRegistry"),
        ({"schemaRegistry": "/r"}, "belongs to decode"),
        ({"decode": "json", "schemaRegistry": "/r", "schemaSubject": "s"}, "belongs to decode"),
        ({"decode": "avro", "schemaRegistry": "/r"}, "or schemaSubject"),
        ({"decode": "avro", "schemaRegistry": "/r", "schemaSubject": "s", "avroSchema": '"int"'}, "give one of them"),
        ({"decode": "avro", "schemaRegistry": "/r", "schemaRegistryTokenFile": "t", "avroSchema": "1"}, "with a URL"),
        ({"decode": "avro", "schemaRegistry": "http://u:p@h", "avroSchema": '"int"'}, "credentials in it"),
        ({"decode": "avro", "schemaRegistry": "http://h:99999", "avroSchema": '"int"'}, "Port out of range"),
        ({"decode": "avro", "schemaRegistry": "http://", "avroSchema": '"int"'}, "give http"),
        ({"decode": "avro", "schemaRegistry": "http://h\r\nX: y", "avroSchema": '"int"'}, "give http"),
        ({"decode": "avro", "schemaRegistry": "http://h", "schemaRegistryRoots": "x", "avroSchema": '"int"'}, "https"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together(given, told):
    with pytest.raises(InvalidOption, match=told):
        parse_row_options(given)


def test_an_invalid_recursive_or_incomplete_descriptor_set_is_refused():
    files = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS)
    alone = descriptor_pb2.FileDescriptorSet(file=[one for one in files.file if one.name == "orders.proto"])
    with pytest.raises(InvalidOption, match=r"lacks the import common.proto.*--include_imports"):
        protobuf_rows(data=alone.SerializeToString())
    with pytest.raises(InvalidOption, match=r"not in protobufDescriptors; it has .*shop.Order"):
        protobuf_rows(message="shop.Nobody")
    for data in (b"", b"\xff\xff", b"no descriptors"):
        with pytest.raises(InvalidOption, match="protobufDescriptors"):
            protobuf_rows(data=data)
    tree = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    message = tree.message_type.add(name="Tree")
    message.field.add(name="left", number=1, type=11, label=1, type_name=".t.Tree")
    recursive = descriptor_pb2.FileDescriptorSet(file=[tree])
    with pytest.raises(InvalidOption, match=r"t.Tree holds itself"):
        protobuf_rows(message="t.Tree", data=recursive.SerializeToString())


def test_messages_inside_each_other_have_a_bound():
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="d.proto", package="d", syntax="proto3")
    for level in range(2000):
        file.message_type.add(name=f"M{level}").field.add(
            name="f", number=1, type=kinds.TYPE_MESSAGE, label=1, type_name=f".d.M{level + 1}"
        )
    file.message_type.add(name="M2000").field.add(name="x", number=1, type=kinds.TYPE_INT32, label=1)
    deep = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    with pytest.raises(InvalidOption, match=r"protobufMessage='d.M0': .* more than 60 deep"):
        protobuf_rows(message="d.M0", data=deep)
    assert made([b"\n\0"], protobuf_rows(message="d.M1999", data=deep))[0] == [{"f": {"x": 0}}]
