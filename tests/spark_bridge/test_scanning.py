"""Scans without Spark: rows against RocketMQ's own manifest, conditions against Python's, bodies where they lie."""

from __future__ import annotations

import datetime as dt
import json
import operator
import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_bridge
from spark_bridge.options.values import InvalidOption
from spark_bridge.records import reader
from spark_bridge.scanning import scan
from store.errors import CorruptRecord, StoreError
from store.message.topics import is_system_topic
from tests.spark_bridge.stores import GOLDEN_STORES, Row, SmallStore, golden_lines, unpack_golden

ROOT = Path(__file__).resolve().parents[2]
START_MS = 1_700_000_000_000
TAGS = ("a", "b", None)
HOLDS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SmallStore:
    """240 messages of three topics over several segments, some with tags, one in ten compressed."""
    store = SmallStore(tmp_path_factory.mktemp("made"), 8192)
    for number in range(240):
        tag = TAGS[number % 3]
        body, sys_flag = bytes([number % 251]) * (number % 90), 0
        if number % 10 == 0:
            body, sys_flag = zlib.compress(body), 1
        store.put(
            ("orders", "returns", "other")[number % 5 % 3],
            body,
            number % 4,
            sys_flag=sys_flag,
            properties=b"" if tag is None else b"TAGS\x01" + tag.encode() + b"\x02",
            born_timestamp_ms=START_MS + number,
            store_timestamp_ms=START_MS + 2 * number,
        )
    return store


class Rows(list[Row]):
    """All of them; hypothesis shows its arguments."""

    def __repr__(self) -> str:
        return f"{len(self)} rows"


@pytest.fixture(scope="module")
def rows(made: SmallStore) -> Rows:
    return Rows(scan(made.root).read_all().to_pylist())


@pytest.mark.parametrize("asked", [{}, {"where": ("queueId", ">", 1)}, {"topics": ["orders"], "columns": ["body"]}])
def test_threads_give_the_same_rows_in_the_same_order(made: SmallStore, asked: dict[str, Any]) -> None:
    alone, figures = scan(made.root, **asked).read_all(), dict[str, int]()
    assert alone.num_rows
    together = scan(made.root, threads=3, splitBytes="4096", figures=figures, **asked).read_all()
    assert together.to_pylist() == alone.to_pylist()
    begun = scan(made.root, threads=3, splitBytes="4096", **asked)
    assert begun.read_next_batch().num_rows
    begun.close()


@pytest.mark.parametrize("threads", [0, -1, 65])
def test_a_number_of_threads_that_cannot_be_is_refused(made: SmallStore, threads: int) -> None:
    with pytest.raises(InvalidOption, match=f"threads={threads}: 1 to 64"):
        scan(made.root, threads=threads)


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES)
def test_a_store_of_rocketmqs_is_read_as_its_own_classes_read_it(version, name, tmp_path):
    store = unpack_golden(version, name, tmp_path)
    found = scan(store).read_all().to_pylist()
    if name == "master":  # the other has batches, of which the manifest tells as one record each
        expected = {line["offsetMsgId"]: line for line in golden_lines(version, name, "message")}
        expected = {key: line for key, line in expected.items() if not is_system_topic(line["topic"])}
        assert sorted(row["msgId"] for row in found) == sorted(expected)
        assert all(dict(row["properties"]) == expected[row["msgId"]]["properties"] for row in found)
    for tag in {row["tags"] for row in found} - {None}:
        tagged = scan(store, where=[("tags", "==", tag), ("queueId", ">", 0)]).read_all().num_rows
        assert tagged == sum(row["tags"] == tag and row["queueId"] > 0 for row in found)
    in_place = scan(store, columns=["body"], zero_copy=True).read_all()
    assert in_place.schema.field("body").type == pa.binary_view()
    assert in_place["body"].to_pylist() == scan(store, columns=["body"]).read_all()["body"].to_pylist()


def test_a_topic_is_read_with_the_options_of_spark(made, rows):
    found = scan(made.root, topics=["orders"], columns=["queueID", "queueOffset"], startingOffsets='{"orders":{"1":5}}')
    expected = [r for r in rows if r["topic"] == "orders" and (r["queueId"] != 1 or r["queueOffset"] >= 5)]
    places = sorted((r["queueId"], r["queueOffset"]) for r in expected)
    assert sorted(tuple(row.values()) for row in found.read_all().to_pylist()) == places
    assert scan(made.root, columns="topic,queueId".split(","), minPartitions=7).read_all().num_rows == len(rows)


_AMONG = st.sampled_from(["in", "not in"])
_CONDITIONS = st.one_of(
    st.tuples(st.just("queueId"), st.sampled_from(sorted(HOLDS)), st.integers(-1, 5)),
    st.tuples(st.just("queueOffset"), st.sampled_from(sorted(HOLDS)), st.integers(-1, 70)),
    st.tuples(st.just("tags"), st.sampled_from(sorted(HOLDS)), st.sampled_from(["", "a", "b", "c"])),
    st.tuples(st.just("topic"), _AMONG, st.lists(st.sampled_from(["orders", "x"]), min_size=1)),
    st.tuples(st.just("tags"), _AMONG, st.lists(st.sampled_from(["a", "c"]), min_size=1)),
    st.tuples(
        st.sampled_from(["bornTimestamp", "storeTimestamp"]),
        st.sampled_from(sorted(HOLDS)),
        st.integers(-5, 500).map(lambda ms: dt.datetime.fromtimestamp((START_MS + ms) / 1000, dt.UTC)),
    ),
)


def _meets(row: Row, condition: tuple[str, str, Any]) -> bool:
    column, op, value = condition
    found = row[column]
    if found is None:
        return False
    if op in HOLDS:
        return bool(HOLDS[op](found, value))
    return (found in value) == (op == "in")


@given(where=st.lists(_CONDITIONS, max_size=3))
def test_conditions_keep_the_rows_that_meet_all_of_them(made, rows, where):
    kept = scan(made.root, columns=["physicalOffset", "body"], where=where).read_all().to_pylist()
    expected = [row for row in rows if all(_meets(row, condition) for condition in where)]
    found = sorted((row["physicalOffset"], row["body"]) for row in kept)
    assert found == sorted((row["physicalOffset"], row["body"]) for row in expected)


@pytest.mark.parametrize("milliseconds", [1, 3, 57, 123, 239])
def test_a_time_that_no_float_holds_is_in_its_range(made, rows, milliseconds):
    moment = dt.datetime.fromtimestamp(START_MS // 1000, dt.UTC) + dt.timedelta(milliseconds=milliseconds)
    for op, holds in (("<=", operator.le), ("==", operator.eq), (">", operator.gt)):
        kept = scan(made.root, columns=["bornTimestamp"], where=("bornTimestamp", op, moment)).read_all().num_rows
        assert kept == sum(holds(row["bornTimestamp"], moment) for row in rows)


def test_times_may_be_texts_and_a_condition_one_tuple(made, rows):
    moment = dt.datetime.fromtimestamp((START_MS + 100) / 1000, dt.UTC)
    late = sum(row["bornTimestamp"] >= moment for row in rows)
    for text in (moment.isoformat(), moment.replace(tzinfo=None).isoformat()):
        assert scan(made.root, where=("bornTimestamp", ">=", text)).read_all().num_rows == late


def test_bodies_in_place_lie_in_the_segments_and_outlive_the_readers_cache(made, rows, monkeypatch):
    monkeypatch.setattr(reader, "SEGMENTS_KEPT_MAX", 1)
    batches = list(scan(made.root, columns=["body", "physicalOffset"], zero_copy=True))
    mapped = [window.array for _, window in reader._segments.values()]
    assert len(mapped) == 1
    bodies = {row["physicalOffset"]: row["body"] for batch in batches for row in batch.to_pylist()}
    assert bodies == {row["physicalOffset"]: row["body"] for row in rows}
    low, size = mapped[0].__array_interface__["data"][0], mapped[0].nbytes
    addresses = [b.address for batch in batches for b in batch.column("body").buffers()[2:] if b is not None]
    assert any(low <= address < low + size for address in addresses), "a batch points into the mapped segment"


def test_dictionaries_hold_the_same_texts(made):
    for columns in (None, ["tags"], ["topic", "bornHost", "storeHost", "brokerName", "msgId"]):
        plain, encoded = (scan(made.root, columns=columns, dictionaries=asked).read_all() for asked in (False, True))
        assert encoded.cast(plain.schema).equals(plain)
        repeated = {field.name for field in encoded.schema if field.type == pa.dictionary(pa.int32(), pa.string())}
        others = {field.name for field in encoded.schema if field.type == plain.schema.field(field.name).type}
        assert repeated == set(plain.column_names) & {"topic", "tags", "bornHost", "storeHost", "brokerName"}
        assert others == set(plain.column_names) - repeated
    where = ("tags", "in", ["a", "b"])
    kept = scan(made.root, columns=["tags", "topic"], where=where, dictionaries=True, threads=2).read_all()
    assert set(kept.column("tags").to_pylist()) == {"a", "b"}
    kafka = scan(made.root, schema="kafka", dictionaries=True).read_all()
    assert kafka.schema.field("topic").type == pa.dictionary(pa.int32(), pa.string())


def test_pandas_polars_and_duckdb_read_dictionaries(made, rows):
    """Each topic is in several batches, whose dictionaries differ."""
    import duckdb
    import polars as pl

    def encoded() -> pa.RecordBatchReader:
        return scan(made.root, columns=["topic", "tags"], dictionaries=True, splitBytes=4096)

    assert len({tuple(batch.column(0).dictionary.to_pylist()) for batch in encoded()}) > 1
    counted = Counter((row["topic"], row["tags"]) for row in rows)
    frame = encoded().read_all().to_pandas()
    assert [str(kind) for kind in frame.dtypes] == ["category", "category"]
    assert Counter((topic, None if tags != tags else tags) for topic, tags in frame.itertuples(index=False)) == counted
    categories: Any = pl.from_arrow(encoded().read_all())
    assert all(kind == pl.Categorical for kind in categories.dtypes)
    grouped = categories.group_by("topic", "tags").agg(pl.len())
    assert {(topic, tags): count for topic, tags, count in grouped.rows()} == counted
    log, ask = encoded(), cast(Any, duckdb.sql)
    found = ask("SELECT topic, tags, count(*) FROM log GROUP BY ALL").fetchall()  # a local variable is a table to it
    del log
    assert {(topic, tags): count for topic, tags, count in found} == counted


def test_what_cannot_be_asked_is_refused_in_one_line(made):
    for where, told in (
        ([("queueId", "=>", 1)], "no operator"),
        ([("queueID", "==", "x")], "queueId is int32"),
        ([("queue", "==", 1)], "did you mean"),
        ([("body", "==", b"x")], "filter the batches"),
        ([("properties", "==", {})], "filter the batches"),
        ([("queueId", "in", [])], "1 to"),
        ("queueId = 1", "a list"),
        ([("queueId", "==", None)], "None"),
        ([("queueId", "==")], "not a condition"),
        ([("queueId", "==", 1)] * 65, "up to 64"),
        ([("queueId", "==", True)], "True"),
        ([("bornTimestamp", ">", "soon")], "bornTimestamp"),
    ):
        with pytest.raises(InvalidOption) as refused:
            scan(made.root, where=where)  # type: ignore[arg-type]
        assert told in str(refused.value)
        assert "\n" not in str(refused.value)
    for argument in ("topics", "columns"):
        for names in ("topic", [7], 7):
            with pytest.raises(InvalidOption, match=rf"{argument}=.*a list of texts"):
                scan(made.root, **{argument: names})
            with pytest.raises(InvalidOption, match=rf"{argument}=.*a list of texts"):  # before Spark is asked anything
                spark_bridge.read(cast(Any, None), made.root, **{argument: names})
    with pytest.raises(InvalidOption, match="not both"):
        scan(made.root, where=("queueId", "==", 1), Where='{"topic":"orders"}')
    with pytest.raises(InvalidOption, match="Spark's source has tables"):
        scan(made.root, table="queues")
    with pytest.raises(InvalidOption, match="once"):
        scan(made.root, columns=["topic"], Columns="topic")
    with pytest.raises(InvalidOption, match="startingOffset"):
        scan(made.root, startingOfsets="earliest")
    with pytest.raises(StoreError):
        scan(made.root / "commitlog" / "nowhere")


def test_damage_ends_a_scan_or_is_a_row(tmp_path):
    store = SmallStore(tmp_path)
    offsets = [store.put("t", b"body %d" % number) for number in range(4)]
    store.dispatch()
    segment = next((tmp_path / "commitlog").iterdir())
    content = bytearray(segment.read_bytes())
    content[offsets[1] + 84] ^= 0x40  # the length of its body
    segment.write_bytes(content)
    with pytest.raises(CorruptRecord):
        scan(tmp_path).read_all()
    columns = ["physicalOffset", "_error"]
    told = scan(tmp_path, columns=columns, where=("queueId", "==", 0), mode="permissive").read_all()
    assert [row["physicalOffset"] for row in told.to_pylist() if row["_error"]] == [offsets[1]]
    assert told.num_rows == 4


def test_a_scan_needs_no_spark(made):
    program = f"""
import sys
sys.modules["pyspark"] = None
from slipstream import scan
print(scan({str(made.root)!r}, columns=["queueId"], where=[("topic", "==", "orders")]).read_all().num_rows)
try:
    scan({str(made.root)!r}, decode="json", valueSchema="a int, b array<decimal(3,1)>", mode="permissive").read_all()
except Exception as error:
    print(error)
print(*(name for name in sys.modules if name.split(".")[0] == "py4j"))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    orders = scan(made.root, topics=["orders"]).read_all().num_rows
    assert ran.stdout.split() == [str(orders)]


def test_json_is_decoded_into_arrows_types(tmp_path):
    store = SmallStore(tmp_path)
    for number in range(3):
        store.put("t", json.dumps({"n": number, "tags": ["x"] * number}).encode())
    table = scan(tmp_path, columns=["body"], decode="json", valueSchema="n bigint, tags array<string>").read_all()
    assert pc.sum(pc.struct_field(table["body"], "n")).as_py() == 3
    assert table.schema.field("body").type.field("tags").type == pa.list_(pa.field("element", pa.string()))
