"""What a write takes: options and columns, RocketMQ's names and Kafka's, and errors with the nearest name."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bridge.option_values import InvalidOption
from spark_bridge.sink_index import key_hashes
from spark_bridge.sink_options import WriteOptions, parse_write_options, sink_columns
from spark_bridge.sink_rows import Messages, RowRefused, Rows, row_keys
from store.index_file import hash_of
from tests.spark_bridge.schemas import struct


@pytest.mark.parametrize(
    ("given_options", "expected"),
    [
        ({"path": "/s"}, WriteOptions("/s")),
        ({"PATH": "/s", "Topic": "t", "acks": "1"}, WriteOptions("/s", topic="t", acks="appended")),
        ({"path": "/s", "acks": "ALL", "timeout": "2.5"}, WriteOptions("/s", timeout_s=2.5)),
        ({"path": "/s", "acks": "0", "idempotent": "False"}, WriteOptions("/s", acks="none", idempotent=False)),
        ({"path": "/s", "writeId": "w", "checkpointLocation": "/c"}, WriteOptions("/s", write_id="w")),
        ({"path": "/s", "systemProperties": "drop"}, WriteOptions("/s", drops_system_properties=True)),
    ],
)
def test_options(given_options: dict[str, str], expected: WriteOptions) -> None:
    assert parse_write_options(given_options, overwrite=False) == expected


@pytest.mark.parametrize(
    ("given_options", "told"),
    [
        ({}, "option path is missing"),
        ({"path": "/s", "tpoic": "x"}, "did you mean 'topic'"),
        ({"path": "/s", "topic": " "}, "topic is empty"),
        ({"path": "/s", "acks": "2"}, "acks='2': one of 0, 1, all"),
        ({"path": "/s", "timeout": "0"}, "timeout=0: above 0"),
        ({"path": "/s", "timeout": "nan"}, "timeout=nan: above 0"),
        ({"path": "/s", "timeout": "soon"}, "seconds, as a number"),
        ({"path": "/s", "idempotent": "maybe"}, "one of true, false"),
        ({"path": "/s", "startingOffsets": "earliest"}, "unknown option 'startingoffsets' of a write"),
    ],
)
def test_wrong_options(given_options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_write_options(given_options, overwrite=False)
    assert told in str(caught.value)


def test_a_log_is_not_overwritten() -> None:
    with pytest.raises(InvalidOption, match="cannot be overwritten"):
        parse_write_options({"path": "/s"}, overwrite=True)


@pytest.mark.parametrize(
    ("ddl", "topic", "parts"),
    [
        ("body binary", "t", {"body": 0}),
        ("BODY string, Topic string", None, {"body": 0, "topic": 1}),
        ("key binary, value binary", "t", {"keys": 0, "body": 1}),
        ("keys array<string>, body string", "t", {"keys": 0, "body": 1}),
        ("value string, headers array<struct<key:string,value:binary>>", "t", {"body": 0, "properties": 1}),
        ("partition int, value string", "t", {"queue_id": 0, "body": 1}),
        (
            "topic string, tags string, keys string, properties map<string,string>, body binary, queueId bigint",
            None,
            {"topic": 0, "tags": 1, "keys": 2, "properties": 3, "body": 4, "queue_id": 5},
        ),
    ],
)
def test_columns(ddl: str, topic: str | None, parts: dict[str, int]) -> None:
    assert sink_columns(struct(ddl), topic).places == parts


@pytest.mark.parametrize(
    ("ddl", "topic", "told"),
    [
        ("topic string", None, "no column body"),
        ("body string", None, "no topic"),
        ("body string, tag string", "t", "did you mean 'tags'"),
        ("body string, value string", "t", "columns body and value are two names"),
        ("body int", "t", "column body is string or binary, the rows have int"),
        ("body string, properties map<string,int>", "t", "column properties is map<string,string>"),
        ("body string, queueOffset bigint", "t", "a message has no column 'queueOffset'"),
    ],
)
def test_wrong_columns(ddl: str, topic: str | None, told: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        sink_columns(struct(ddl), topic)
    assert told in str(caught.value)


def messages_of(ddl: str, rows: list[dict[str, object]], schema: pa.Schema, *, drop: bool = False) -> Messages:
    columns = sink_columns(struct(ddl), "t")
    return Rows(columns, "t", drops_system_properties=drop).messages(pa.RecordBatch.from_pylist(rows, schema))


HEADERS = pa.schema([
    ("key", pa.binary()), ("value", pa.binary()),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
])  # fmt: skip
HEADERS_DDL = "key binary, value binary, headers array<struct<key:string,value:binary>>"
PLAIN = pa.schema([("properties", pa.map_(pa.string(), pa.string())), ("body", pa.string())])
PLAIN_DDL = "properties map<string,string>, body string"


def test_kafkas_rows_become_messages() -> None:
    found = messages_of(
        HEADERS_DDL,
        [
            {"key": b"k 1", "value": b"v", "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}]},
            {"key": None, "value": b"", "headers": None},
        ],
        HEADERS,
    )
    assert (found.keys, found.bodies) == (["k 1", None], [b"v", b""])
    assert found.properties == [{"a": "1", "b": "2"}, {}]


@pytest.mark.parametrize(
    ("ddl", "schema", "row", "told"),
    [
        (PLAIN_DDL, PLAIN, {"properties": [], "body": None}, "row 0 of this task: body: it is null"),
        (PLAIN_DDL, PLAIN, {"properties": [("UNIQ_KEY", "x")], "body": "b"}, "RocketMQ keeps this name"),
        (PLAIN_DDL, PLAIN, {"properties": [("a", "")], "body": "b"}, "without a name or a value"),
        (HEADERS_DDL, HEADERS, {"key": b"\xff", "value": b"v", "headers": []}, "its bytes are not UTF-8"),
        (
            HEADERS_DDL, HEADERS,
            {"key": b"k", "value": b"v", "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}]},
            "header a: a message has one value",
        ),
    ],
)  # fmt: skip
def test_rows_that_are_no_messages(ddl: str, schema: pa.Schema, row: dict[str, object], told: str) -> None:
    with pytest.raises(RowRefused) as caught:
        messages_of(ddl, [row], schema)
    assert told in str(caught.value)


def test_properties_that_rocketmq_keeps_for_itself_are_left_out_when_asked_for() -> None:
    row = {"properties": [("UNIQ_KEY", "x"), ("CLUSTER", "c"), ("mine", "1")], "body": "b"}
    assert messages_of(PLAIN_DDL, [row], PLAIN, drop=True).properties == [{"mine": "1"}]


def test_a_rows_key_says_all_of_it_and_nothing_of_its_place() -> None:
    rows = [{"properties": [("p", str(n % 3))], "body": str(n // 3)} for n in range(12)]
    keys = row_keys(b"scope", messages_of(PLAIN_DDL, rows, PLAIN))
    assert len(set(keys)) == 12
    assert row_keys(b"scope", messages_of(PLAIN_DDL, rows[::-1], PLAIN)) == keys[::-1]
    assert not set(keys) & set(row_keys(b"other", messages_of(PLAIN_DDL, rows, PLAIN)))
    assert {(len(key), key[20:28]) for key in keys} == {(32, "00000000")}


@given(st.lists(st.tuples(st.text("abcXYZ%-_|09", min_size=1, max_size=20), st.binary(min_size=16, max_size=16))))
def test_hashes_of_many_keys_are_those_of_the_index(pairs: list[tuple[str, bytes]]) -> None:
    topics, keys = [topic for topic, _ in pairs], [raw.hex().upper() for _, raw in pairs]
    assert key_hashes(topics, keys).tolist() == [hash_of(topic, key) for topic, key in zip(topics, keys, strict=True)]
