"""What a write takes: options and columns, RocketMQ's names and Kafka's, and errors with the nearest name."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bridge.options.values import InvalidOption
from spark_bridge.sink.index import key_hashes
from spark_bridge.sink.options import WriteOptions, parse_write_options
from spark_bridge.sink.rows import Messages, RowRefused, Rows, row_keys
from spark_bridge.sink.writer import sink_columns
from store.index.index_file import hash_of
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
        ({"path": "/s", "systemProperties": "refuse"}, WriteOptions("/s", drops_system_properties=False)),
        (
            {"path": "/s", "kafka.bootstrap.servers": "h:9092", "kafka.acks": "1", "Kafka.Linger.ms": "5"},
            WriteOptions("/s"),
        ),
        ({"path": "/s", "includeHeaders": "true", "kafka.security.protocol": "SSL"}, WriteOptions("/s")),
        ({"path": "/s", "groupIdPrefix": "g", "includeHeaders": "false"}, WriteOptions("/s")),
    ],
)
def test_write_options_are_parsed(given_options: dict[str, str], expected: WriteOptions) -> None:
    assert parse_write_options(given_options, overwrite=False) == expected


@pytest.mark.parametrize(
    ("given_options", "told"),
    [
        ({}, "option path is missing"),
        (
            {"topic": "a"},
            "INSERT INTO and CREATE TABLE ... AS SELECT do not tell a source the options of a table: write df",
        ),
        ({"path": "/s", "tpoic": "x"}, "did you mean 'topic'"),
        ({"path": "/s", "topic": " "}, "topic is empty"),
        ({"path": "/s", "acks": "2"}, "acks='2': one of 0, 1, all"),
        ({"path": "/s", "timeout": "0"}, "timeout=0: above 0"),
        ({"path": "/s", "timeout": "nan"}, "timeout=nan: above 0"),
        ({"path": "/s", "timeout": "soon"}, "seconds, as a number"),
        ({"path": "/s", "idempotent": "maybe"}, "one of true, false"),
        ({"path": "/s", "includeHeaders": "yes"}, "one of true, false"),
        ({"path": "/s", "kafkas.acks": "1"}, "unknown option 'kafkas.acks'"),
        ({"path": "/s", "startingOffsets": "earliest"}, "unknown option 'startingoffsets' of a write"),
    ],
)
def test_wrong_write_options_are_refused(given_options: dict[str, str], told: str) -> None:
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
            "key binary, value binary, topic string, partition int, offset bigint, timestamp bigint, timestampType int",
            None,
            {"keys": 0, "body": 1, "topic": 2, "queue_id": 3},
        ),
        (
            "topic string, tags string, keys string, properties map<string,string>, body binary, queueId bigint",
            None,
            {"topic": 0, "tags": 1, "keys": 2, "properties": 3, "body": 4, "queue_id": 5},
        ),
    ],
)
def test_columns_of_a_frame_are_mapped_to_parts_of_a_message(
    ddl: str, topic: str | None, parts: dict[str, int]
) -> None:
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
def test_a_frame_with_wrong_columns_is_refused(ddl: str, topic: str | None, told: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        sink_columns(struct(ddl), topic)
    assert told in str(caught.value)


def messages_of(ddl: str, rows: list[dict[str, object]], schema: pa.Schema, *, drop: bool | None = None) -> Messages:
    columns = sink_columns(struct(ddl), "t")
    taken = Rows(columns, "t", drops_system_properties=drop, body_bytes_max=100)
    return taken.messages(pa.RecordBatch.from_pylist(rows, schema))


HEADERS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
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


def headed(*headers: tuple[str | None, bytes | None], key: bytes | None = b"k") -> dict[str, object]:
    return {"key": key, "value": b"v", "headers": [{"key": name, "value": value} for name, value in headers]}


REFUSED = [
    (PLAIN_DDL, PLAIN, {"properties": [], "body": None}, "body: it is null, and RocketMQ has no messages without one"),
    (PLAIN_DDL, PLAIN, {"properties": [], "body": "b" * 101}, "body: 101 bytes, maxMessageSize is 100"),
    (PLAIN_DDL, PLAIN, {"properties": [("UNIQ_KEY", "x")], "body": "b"}, "property UNIQ_KEY: RocketMQ keeps this name"),
    (PLAIN_DDL, PLAIN, {"properties": [("a", "")], "body": "b"}, "property 'a': RocketMQ drops those without"),
    (PLAIN_DDL, PLAIN, {"properties": [("a", "1\x02")], "body": "b"}, r"property a: '1\x02': 0x01 and 0x02 separate"),
    (PLAIN_DDL, PLAIN, {"properties": [("a\x01", "1")], "body": "b"}, r"property's name: 'a\x01': 0x01 and 0x02"),
    (PLAIN_DDL, PLAIN, {"properties": [("a", "é" * 16_383)], "body": "b"}, "properties: they are longer than 32767"),
    (HEADERS_DDL, HEADERS, headed(key=b"\xff"), "key: it is kept as text, and its bytes are not UTF-8"),
    (HEADERS_DDL, HEADERS, headed(key=b"a\x01b"), r"key: 'a\x01b': 0x01 and 0x02 separate properties"),
    (HEADERS_DDL, HEADERS, headed(("a", b"1"), ("a", b"2")), "header a: a message has one value for a name"),
    (HEADERS_DDL, HEADERS, headed(("a", None)), "property 'a': RocketMQ drops those without a name or a value"),
    (HEADERS_DDL, HEADERS, headed(("a", b"\xff")), "property a: it is kept as text, and its bytes are not UTF-8"),
]


@pytest.mark.parametrize(("ddl", "schema", "row", "told"), REFUSED)
def test_a_row_that_is_no_message_is_refused_with_its_number(
    ddl: str, schema: pa.Schema, row: dict[str, object], told: str
) -> None:
    with pytest.raises(RowRefused) as caught:
        messages_of(ddl, [row], schema)
    assert f"row 0 of this task: {told}" in str(caught.value)


@pytest.mark.parametrize(
    ("ddl", "kind", "value", "told"),
    [
        ("topic", pa.string(), "no spaces", "topic 'no spaces': 1 to 127 characters of % | a-z"),
        ("topic", pa.string(), None, "topic: it is null or empty"),
        ("topic", pa.string(), "SCHEDULE_TOPIC_XXXX", "it belongs to the broker; clients cannot send to it"),
        ("queueId", pa.int64(), 1 << 32, "queueId 4294967296: queues are numbered from 0 to 2147483647"),
        ("queueId", pa.int64(), -1, "queueId -1: queues are numbered from 0"),
        ("tags", pa.string(), "a\x02b", r"tags: 'a\x02b': 0x01 and 0x02 separate properties"),
    ],
)
def test_a_row_with_an_invalid_topic_queue_or_tag_is_refused(
    ddl: str, kind: pa.DataType, value: object, told: str
) -> None:
    schema = pa.schema([("body", pa.string()), (ddl, kind)])
    spark_type = "bigint" if kind == pa.int64() else "string"
    topic = None if ddl == "topic" else "t"
    rows = Rows(sink_columns(struct(f"body string, {ddl} {spark_type}"), topic), topic)
    with pytest.raises(RowRefused) as caught:
        rows.messages(pa.RecordBatch.from_pylist([{"body": "b", ddl: value}], schema))
    assert told in str(caught.value)


def test_refused_rows_of_a_batch_are_reported_with_their_reasons_up_to_a_bound() -> None:
    good = {"properties": [], "body": "b"}
    rows = [good, {"properties": [("CLUSTER", "c")], "body": None}, good, {"properties": [], "body": None}]
    with pytest.raises(RowRefused) as caught:
        messages_of(PLAIN_DDL, rows, PLAIN)
    assert [(refusal.row, refusal.what) for refusal in caught.value.refusals] == [
        (1, "body"),
        (1, "property CLUSTER"),
        (3, "body"),
    ]
    assert "\n" not in str(caught.value)
    with pytest.raises(RowRefused, match="and 490 more; no row of this batch was sent"):
        messages_of(PLAIN_DDL, [{"properties": [], "body": None}] * 500, PLAIN)


def test_headers_that_were_read_are_written_without_what_rocketmq_put_there() -> None:
    read = headed(("UNIQ_KEY", b"x"), ("CLUSTER", b"c"), ("TAGS", b"red"), ("KEYS", b"own"), ("mine", b"1"), key=None)
    found = messages_of(HEADERS_DDL, [read], HEADERS)
    assert (found.properties, found.tags, found.keys) == ([{"mine": "1"}], ["red"], [None]), "the column key counts"
    schema = pa.schema([HEADERS.field("value"), HEADERS.field("headers")])
    without_key = "value binary, headers array<struct<key:string,value:binary>>"
    assert messages_of(without_key, [{"value": b"v", "headers": read["headers"]}], schema).keys == ["own"]
    with pytest.raises(RowRefused, match="RocketMQ keeps this name for itself"):
        messages_of(HEADERS_DDL, [read], HEADERS, drop=False)


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
