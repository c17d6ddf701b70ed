"""Options of rows: what is accepted, what they contradict, and types without a JVM."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_type

from spark_bridge.options.avro_types import avro_type
from spark_bridge.options.rows import RowOptions, parse_row_options
from spark_bridge.options.value_types import named_type
from spark_bridge.options.values import InvalidOption
from spark_bridge.records.spark_schema import spark_type

POINT = '{"type":"record","name":"Point","fields":[{"name":"x","type":"int"},{"name":"y","type":["null","double"]}]}'

NOTHING_REPEATED = json.dumps(
    {
        "type": "array",
        "items": {"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]},
    }
)
NO_FIELDS = '{"type":"record","name":"Nothing","fields":[]}'


def test_defaults_are_rocketmqs_rows_as_stored_and_an_error_for_damage() -> None:
    options = parse_row_options({})
    assert options == RowOptions("rocketmq", "raw", None, None, "failfast", True, False, False, True)
    assert not options.permissive


def test_every_option_in_any_case() -> None:
    given = {
        "SCHEMA": "Kafka", "Decode": "JSON", "valueschema": "a int", "MODE": "PERMISSIVE", "includeheaders": "True",
        "verifycrc": "Body", "failondataloss": "false", "path": "/not/ours",
    }  # fmt: skip
    value = pa.struct([("a", pa.int32())])
    expected = RowOptions("kafka", "json", value, None, "permissive", True, True, True, False)
    assert parse_row_options(given) == expected


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"schema": "kafkaa"}, "schema='kafkaa': one of rocketmq, kafka"),
        ({"decode": "xml"}, "one of raw, json, avro"),
        ({"mode": "dropmalformed"}, "one of permissive, failfast"),
        ({"includeHeaders": "true"}, "includeHeaders belongs to schema=kafka"),
        ({"schema": "kafka", "includeProperties": "true"}, "schema=kafka has includeHeaders"),
        ({"includeProperties": "yes"}, "one of true, false"),
        ({"valueSchema": "a int"}, "valueSchema belongs to decode=json"),
        ({"decode": "json", "avroSchema": POINT}, "avroSchema belongs to decode=avro"),
        ({"decode": "avro"}, "decode=avro needs avroSchema"),
        ({"decode": "avro", "avroSchema": "{"}, "an Avro schema as JSON"),
        ({"decode": "avro", "avroSchema": '["int","string"]'}, "of several types"),
        ({"decode": "avro", "avroSchema": '{"type":"array","items":"null"}'}, "no bound"),
        ({"decode": "avro", "avroSchema": NOTHING_REPEATED}, "no bound"),
        ({"decode": "avro", "avroSchema": '{"type":"fixed","name":"F","size":0}'}, "has no bytes"),
        ({"decode": "json", "valueSchema": "a"}, "valueSchema='a'"),
        ({"decode": "json", "valueSchema": "a map<int,string>"}, "the keys of a map in JSON are texts"),
        ({"decode": "json", "valueSchema": "a interval"}, "'interval' is not one of"),
        ({"decode": "json", "valueSchema": "a decimal(50,1)"}, "too large"),
        ({"decode": "json", "valueSchema": "a int b int"}, "expected ','"),
        ({"decode": "json", "valueSchema": "a array<int"}, "expected '>'"),
        ({"decode": "json", "valueSchema": ""}, "names no column"),
        ({"decode": "json", "valueSchema": '{"fields":7}'}, "columns as"),
        ({"decode": "json", "valueSchema": t.StructType([t.StructField("v", t.VariantType())]).json()}, "'variant' is"),
        ({"decode": "json", "valueSchema": '{"fields":[]}'}, "a schema without fields"),
        ({"decode": "json", "valueSchema": "a int, b int, a int"}, "the schema has 'a' twice"),
        ({"decode": "json", "valueSchema": "a array<struct<b int, b int>>"}, "field 'element' has 'b' twice"),
        ({"decode": "json", "valueSchema": f"a {'array<' * 80}int{'>' * 80}"}, "more than 60 deep"),
        ({"decode": "avro", "avroSchema": NO_FIELDS}, "a schema without fields"),
        ({"decode": "avro", "avroSchema": POINT.replace('"y"', '"x"')}, "the schema has 'x' twice"),
        ({"verifyCrc": "all"}, "one of none, body"),
    ],
)
def test_errors_name_the_option_and_what_would_do(given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_row_options(given)
    assert told in str(caught.value)


def test_ddl_is_read_as_spark_reads_it() -> None:
    text = "id BIGINT, `a b` struct<x: int, y array<decimal(12,3)>>, s string, t timestamp, d decimal, f float, b byte"
    found = named_type("valueSchema", text)
    inner = t.StructType([t.StructField("x", t.IntegerType()), t.StructField("y", t.ArrayType(t.DecimalType(12, 3)))])
    expected = t.StructType(
        [
            t.StructField("id", t.LongType()),
            t.StructField("a b", inner),
            t.StructField("s", t.StringType()),
            t.StructField("t", t.TimestampType()),
            t.StructField("d", t.DecimalType(10, 0)),
            t.StructField("f", t.FloatType()),
            t.StructField("b", t.ByteType()),
        ]
    )
    assert found == to_arrow_type(expected, timezone="UTC")
    assert spark_type(found) == expected
    assert named_type("valueSchema", expected.json()) == found


def test_avro_types_map_as_in_sparks_own_source() -> None:
    fields = [
        ("s", "string"),
        ("l", "long"),
        ("b", "bytes"),
        ("e", {"type": "enum", "name": "E", "symbols": ["A"]}),
        ("f", {"type": "fixed", "name": "F", "size": 4}),
        ("n", ["null", "int"]),
        ("w", ["int", "long"]),
        ("a", {"type": "array", "items": "float"}),
        ("m", {"type": "map", "values": "boolean"}),
        ("ms", {"type": "long", "logicalType": "timestamp-millis"}),
        ("d", {"type": "int", "logicalType": "date"}),
        ("dec", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        ("again", "F"),
        ("day", {"type": "int", "logicalType": "time-millis"}),
    ]
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    found = avro_type("avroSchema", json.dumps(schema))
    assert spark_type(found).simpleString() == (
        "struct<s:string,l:bigint,b:binary,e:string,f:binary,n:int,w:bigint,a:array<float>,m:map<string,boolean>,"
        "ms:timestamp,d:date,dec:decimal(9,2),again:binary,day:int>"
    )
    assert avro_type("avroSchema", '"long"') == pa.int64()


def test_a_schema_that_holds_itself_is_refused() -> None:
    schema = '{"type":"record","name":"N","fields":[{"name":"next","type":["null","N"]}]}'
    with pytest.raises(InvalidOption, match="N holds itself"):
        avro_type("avroSchema", schema)
