"""What becomes a row and what does not: batches, compressed bodies, transactions, system topics; Kafka's columns."""

from __future__ import annotations

import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from spark_bridge.options.rows import RowOptions
from spark_bridge.options.values import InvalidOption
from spark_bridge.records import inflation
from spark_bridge.records.spark_schema import schema_of, settled
from spark_bridge.split.splits import Selection, plan
from store.columns import bodies
from store.columns.columns import COLUMNS
from store.errors import CorruptRecord, MalformedData
from store.message.host import Host
from store.message.inner_batch import BatchItem
from store.message.record import MAGIC_V2
from tests.harness.batches import batch_body
from tests.spark_bridge.stores import Row, SmallStore, read_rows

KAFKA, PERMISSIVE = RowOptions("kafka"), RowOptions(mode="permissive")
INNER = 0x80 | 0x40
COMPRESSIONS = {0x001: zlib.compress, 0x301: zlib.compress, 0x101: lz4.frame.compress, 0x201: zstandard.compress}


def scanned(
    store: SmallStore, names: list[str] | None = None, rows: RowOptions | None = None, **selection: object
) -> list[Row]:
    chosen = Selection(**selection)  # type: ignore[arg-type]
    return read_rows(plan(store.extent(reput=0), [], frozenset(), chosen, 4096, 4), names, rows or RowOptions())


def inner_batch(count: int, size: int = 5) -> bytes:
    return batch_body(
        BatchItem(number, bytes([65 + number % 26]) * size, b"TAGS\x01t%d\x02" % number) for number in range(count)
    )


@pytest.mark.parametrize("flag", COMPRESSIONS)
def test_compressed_bodies_are_inflated_and_their_stored_length_is_shown(tmp_path, flag):
    store = SmallStore(tmp_path)
    texts = [b"", b"short", b"exactly12byt", b"x" * 1000, b"plain" * 30]
    for text in texts:
        store.put("t", COMPRESSIONS[flag](text), sys_flag=flag)
        store.put("t", text)
    rows = scanned(store, ["body", "bodyLength", "sysFlag"])
    assert [row["body"] for row in rows] == [text for text in texts for _ in range(2)]
    assert [row["bodyLength"] for row in rows[::2]] == [len(COMPRESSIONS[flag](text)) for text in texts]
    assert {row["sysFlag"] for row in rows} == {flag, 0}


def test_a_batch_is_cut_where_its_inflated_bodies_get_large(tmp_path, monkeypatch):
    store = SmallStore(tmp_path)
    texts = [bytes([number]) * 1000 for number in range(20)]
    for text in texts:
        store.put("t", zlib.compress(text), sys_flag=1)
    monkeypatch.setattr(bodies, "INFLATED_BYTES_MAX", 2500)
    assert [row["body"] for row in scanned(store, ["body"])] == texts
    damaged = store.put("t", b"no zlib", sys_flag=1)
    for text in texts:
        store.put("t", zlib.compress(text), sys_flag=1)
    rows = scanned(store, ["body", "physicalOffset", "_error"], PERMISSIVE)
    assert [row["body"] for row in rows] == [*texts, None, *texts]
    assert [row["physicalOffset"] for row in rows if row["_error"]] == [damaged]


def test_a_body_that_cannot_be_inflated_is_an_error_or_a_row_that_tells_of_it(tmp_path):
    store = SmallStore(tmp_path)
    store.put("t", b"before")
    offset = store.put("t", b"no zlib stream", sys_flag=1)
    store.put("t", b"behind")
    with pytest.raises(MalformedData, match=f"record at offset {offset}") as caught:
        scanned(store, ["body"])
    assert str(tmp_path) in str(caught.value)
    rows = scanned(store, ["topic", "body", "_error"], PERMISSIVE)
    assert [row["body"] for row in rows] == [b"before", None, b"behind"]
    assert [row["topic"] for row in rows] == ["t"] * 3
    assert [row["_error"] is not None for row in rows] == [False, True, False]
    assert rows[1]["_error"].startswith(f"MALFORMED_DATA: {tmp_path}")
    assert len(scanned(store, ["topic"])) == 3  # nobody asked for the body


@settings(deadline=None, max_examples=40)
@given(
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    v6=st.booleans(),
    compressed=st.booleans(),
    copied_bytes_max=st.sampled_from([1, 300, 1 << 20]),
)
def test_inner_batches_are_rows_between_the_others(tmp_path_factory, counts, v6, compressed, copied_bytes_max):
    store = SmallStore(tmp_path_factory.mktemp("store"))
    expected = []
    host = Host("2001:db8:0:0:0:0:0:1", 2) if v6 else Host("1.2.3.4", 5)
    for number, count in enumerate(counts):
        place = {"store_host": host, "magic": MAGIC_V2, "queue_id": 3, "reconsume_times": number}
        if count == 0:
            offset = store.put("topic", b"alone", properties=b"TAGS\x01a", **place)
            expected.append((offset, store.records[-1][4], "a", b"alone", 0, number))
            continue
        body = inner_batch(count)
        flag = INNER | compressed
        properties = b"INNER_BASE\x01%d\x02INNER_NUM\x01%d\x02" % (100 * number, count)
        body = zlib.compress(body) if compressed else body
        offset = store.put("topic", body, sys_flag=flag, properties=properties, **place)
        for inner in range(count):
            text = bytes([65 + inner]) * 5
            expected.append((offset, 100 * number + inner, f"t{inner}", text, inner, number))
    names = ["physicalOffset", "queueOffset", "tags", "body", "flag", "reconsumeTimes", "topic", "queueId", "sysFlag"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inflation, "COPIED_BYTES_MAX", copied_bytes_max)
        for options in (RowOptions(), PERMISSIVE, RowOptions(verify_body_crc=True)):
            rows = scanned(store, names, options)
            assert [tuple(row[name] for name in names[:6]) for row in rows] == expected
            assert {(row["topic"], row["queueId"], row["sysFlag"]) for row in rows} == {("topic", 3, 0x20 if v6 else 0)}


def test_bounds_of_a_queue_are_those_of_the_messages_in_a_batch(tmp_path):
    store = SmallStore(tmp_path)
    for base in (0, 4):
        properties = b"INNER_BASE\x01%d\x02INNER_NUM\x014\x02" % base
        store.put("t", inner_batch(4), sys_flag=INNER, properties=properties, magic=MAGIC_V2)
    rows = scanned(store, ["queueOffset"], topics=frozenset(["t"]), bounds=(("t", 0, 2, 7),))
    assert [row["queueOffset"] for row in rows] == [2, 3, 4, 5, 6]


def test_an_invalid_batch_is_an_error_or_a_row_and_no_matter_to_other_topics(tmp_path):
    store = SmallStore(tmp_path)
    store.put("other", b"before")
    offset = store.put("t", inner_batch(3)[:-1], 7, sys_flag=INNER)
    store.put("other", b"behind")
    with pytest.raises(MalformedData, match=f"inner batch at offset {offset}") as caught:
        scanned(store)
    assert str(tmp_path) in str(caught.value)
    assert len(scanned(store, topics=frozenset(["other"]))) == 2
    rows = scanned(store, ["topic", "queueId", "queueOffset", "physicalOffset", "body", "_error"], PERMISSIVE)
    assert [row["body"] for row in rows] == [b"before", None, b"behind"]
    told = rows[1].pop("_error")
    assert rows[1] == {"topic": "t", "queueId": 7, "queueOffset": 0, "physicalOffset": offset, "body": None}
    assert "inner batch" in told


def test_the_crc_of_a_batch_is_checked_before_it_is_taken_apart(tmp_path):
    store = SmallStore(tmp_path)
    offset = store.put("t", inner_batch(3), sys_flag=INNER)
    path = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[offset + 88 + 20] ^= 1  # in the first message's body
    path.write_bytes(content)
    assert len(scanned(store)) == 3
    with pytest.raises(CorruptRecord, match="CRC"):
        scanned(store, ["queueId"], RowOptions(verify_body_crc=True))


def test_only_what_a_transaction_committed_is_a_row(tmp_path):
    store = SmallStore(tmp_path)
    for number, flag in enumerate((0x0, 0x4, 0x8, 0xC, 0x0)):
        store.put("orders", bytes([number]), sys_flag=flag)
    assert [row["body"] for row in scanned(store, ["body"])] == [b"\0", b"\x02", b"\x04"]
    assert [row["body"] for row in scanned(store, ["body"], topics=frozenset(["orders"]))] == [b"\0", b"\x02", b"\x04"]


TOPICS = (
    "orders", "Sales", "SCHEDULE_TOPIC_XXXX", "%RETRY%group", "RMQ_SYS_TRANS_HALF_TOPIC", "%DLQ%group", "SCHEDULED",
    "rmq_sys_wheel_timer", "T", "TBW102", "RMQ_", "OFFSET_MOVED_EVENT", "rmq_sys", "TRANS_CHECK_MAX_TIME_TOPIC",
)  # fmt: skip
SHOWN = ["orders", "Sales", "%RETRY%group", "%DLQ%group", "SCHEDULED", "T", "RMQ_", "rmq_sys"]


@pytest.mark.parametrize("shape", [{}, {"magic": MAGIC_V2}, {"born_host": Host("0:0:0:0:0:0:0:1", 1)}])
def test_system_topics_are_rows_only_on_request_retries_and_dead_letters_always(tmp_path, shape):
    store = SmallStore(tmp_path)
    for topic in TOPICS:
        store.put(topic, b"", **shape)
    assert [row["topic"] for row in scanned(store, ["topic"])] == list(TOPICS)
    assert [row["topic"] for row in scanned(store, ["topic"], system_topics=False)] == SHOWN
    named = scanned(store, ["topic"], topics=frozenset(["TBW102"]), system_topics=False)
    assert [row["topic"] for row in named] == ["TBW102"]


def test_system_topics_without_queues_are_not_looked_for(tmp_path):
    store = SmallStore(tmp_path)
    for topic in ("orders", "SCHEDULE_TOPIC_XXXX"):
        store.put(topic, b"")
    store.dispatch()
    hidden = Selection(system_topics=False)
    assert len(read_rows(plan(store.extent(), [], frozenset(), hidden, None, 1), ["topic"])) == 1
    (tmp_path / "consumequeue" / "SCHEDULE_TOPIC_XXXX").rename(tmp_path / "consumequeue" / "moved")
    assert len(read_rows(plan(store.extent(reput=0), [], frozenset(), hidden, None, 1), ["topic"])) == 1


def test_kafkas_columns_and_types() -> None:
    expected = t.StructType(
        [
            t.StructField("key", t.BinaryType()),
            t.StructField("value", t.BinaryType()),
            t.StructField("topic", t.StringType()),
            t.StructField("partition", t.IntegerType()),
            t.StructField("offset", t.LongType()),
            t.StructField("timestamp", t.TimestampType()),
            t.StructField("timestampType", t.IntegerType()),
        ]
    )
    assert schema_of(rows=KAFKA) == expected
    headers = t.ArrayType(t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())]))
    assert schema_of(rows=RowOptions("kafka", include_headers=True)) == expected.add("headers", headers)


def test_kafkas_columns_say_what_rocketmqs_say(tmp_path):
    store = SmallStore(tmp_path)
    properties = b"KEYS\x01k1 k2\x02TAGS\x01a\x02\xc3\xbc\x01\xe4\xb8\xad"
    store.put("t", b"one", 3, properties=properties, born_timestamp_ms=1234)
    store.put("t", zlib.compress(b"two"), 3, sys_flag=1)
    options = RowOptions("kafka", include_headers=True)
    first, second = scanned(store, None, options)
    assert first.pop("timestamp").timestamp() == 1.234
    assert second.pop("timestamp").timestamp() == 0
    headers = [{"key": "KEYS", "value": b"k1 k2"}, {"key": "TAGS", "value": b"a"}, {"key": "ü", "value": "中".encode()}]
    same = {"topic": "t", "partition": 3, "timestampType": 0}
    assert first == {"key": b"k1 k2", "value": b"one", "offset": 0, "headers": headers, **same}
    assert second == {"key": None, "value": b"two", "offset": 1, "headers": None, **same}


def test_properties_are_left_out_on_request_and_reported_errors_have_a_column() -> None:
    names = [column.name for column in COLUMNS]
    assert schema_of().fieldNames() == names
    assert schema_of(rows=RowOptions(include_properties=False)).fieldNames() == [n for n in names if n != "properties"]
    assert schema_of(rows=PERMISSIVE).fieldNames() == [*names, "_error"]
    assert settled(schema_of(["queueId", "_error"]), PERMISSIVE) == PERMISSIVE
    with pytest.raises(InvalidOption, match="add '_error string'"):
        settled(schema_of(["queueId"]), PERMISSIVE)


def test_text_that_is_no_utf8_is_read_as_java_reads_it(tmp_path):
    store = SmallStore(tmp_path)
    store.put("t", b"", properties=b"TAGS\x01a\xffb\x02\xed\xa0\x80\x01v")
    store.put("t", b"", properties=b"TAGS\x01fine")
    rows = scanned(store, ["tags", "properties"])
    assert [row["tags"] for row in rows] == ["a\ufffdb", "fine"]
    assert dict(rows[0]["properties"]) == {"TAGS": "a\ufffdb", "\ufffd": "v"}


def test_the_brokers_name_is_a_column(tmp_path):
    store = SmallStore(tmp_path)
    store.put("t", inner_batch(2), sys_flag=INNER)
    store.put("t", b"")
    extent = store.extent()
    named = type(extent)(**{**extent.__dict__, "broker_name": "broker-a"})
    splits = plan(named, [], frozenset(), Selection(), None, 1)
    assert read_rows(splits, ["brokerName"]) == [{"brokerName": "broker-a"}] * 3
    assert scanned(store, ["brokerName"]) == [{"brokerName": None}] * 3
