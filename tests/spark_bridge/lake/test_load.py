"""Loads into tables of Iceberg and Delta, read back by PyIceberg, polars and DuckDB: rows are those of the log."""

from __future__ import annotations

import io
import json
import shutil
import threading
import zlib
from decimal import Decimal
from pathlib import Path

import duckdb
import fastavro
import pytest
from deltalake.exceptions import TableNotFoundError
from pyiceberg.exceptions import NoSuchTableError

from spark_bridge.lake import local_log
from spark_bridge.lake.errors import OffsetsDamaged, OtherLog, SchemaRefused, TableNotOurs
from spark_bridge.lake.schema import COLUMNS, read_names, table_schema
from spark_bridge.options.rows import DEFAULT_ROWS
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan.names import UnknownTopic
from spark_bridge.scanning import scan
from spark_bridge.stream.offsets import DataLost
from store.errors import MalformedData, StoreError
from store.files.segment import file_name
from tests.spark_bridge.lakes import FORMATS, Lake
from tests.spark_bridge.stores import SmallStore


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path, request.param)


def test_rows_are_those_of_the_log_and_the_next_load_goes_on_behind_them(lake: Lake) -> None:
    lake.fill(100)
    commits = lake.load(max_rows=40)
    assert [one.rows for one in commits] == [40, 40, 20]
    assert lake.places() == lake.expected
    scanned = scan(str(lake.store.root), columns=list(COLUMNS)).read_all().to_pylist()
    assert lake.rows() == sorted(scanned, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))
    version = lake.version
    assert lake.load() == []
    assert lake.version == version, "nothing new is no commit"
    lake.fill(7, "returns")
    assert [one.rows for one in lake.load()] == [7]
    assert lake.places() == lake.expected


def test_a_commit_is_cut_in_the_logs_own_order(lake: Lake) -> None:
    lake.fill(60)
    with lake.tables(rows_max=25) as tables:
        tables.open()
        assert next(tables.commits(is_due=True)).rows == 25
        ends = sorted(row["physicalOffset"] for row in lake.rows())
        assert ends == lake.store.offsets[:25]


def test_what_grows_in_memory_makes_smaller_commits(lake: Lake) -> None:
    lake.put("orders", *(zlib.compress(bytes(1 << 20)) for _ in range(16)), sys_flag=1)
    commits = lake.load(max_bytes=1 << 20)
    assert len(commits) > 2
    assert sum(one.rows for one in commits) == 16


@pytest.mark.parametrize("max_bytes", [1 << 10, 1 << 13, 1 << 20])
def test_pieces_that_threads_read_ahead_make_the_same_commits(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    monkeypatch.setattr(local_log, "PIECE_BYTES", 1 << 10)
    monkeypatch.setattr(local_log, "cpus", lambda: 3)
    before = set(threading.enumerate())
    lake.fill(120)
    lake.put("orders", *(zlib.compress(bytes(1 << 14)) for _ in range(4)), sys_flag=1)
    commits = lake.load(max_bytes=max_bytes)
    assert sum(one.rows for one in commits) == 124
    assert (len(commits) > 1) is (max_bytes < 1 << 20)
    assert [place[:3] for place in lake.places()] == [place[:3] for place in lake.expected]
    assert not [one for one in set(threading.enumerate()) - before if one.name.startswith("slipstream-ahead")]


def test_duckdb_finds_the_same_rows_in_the_files(lake: Lake) -> None:
    lake.fill(30)
    lake.load()
    files = (
        [task.file.file_path for task in lake.iceberg().scan().plan_files()]
        if lake.format == "iceberg"
        else (lake.delta().file_uris())
    )
    read = "SELECT topic, queueId, queueOffset, body FROM read_parquet(?) ORDER BY ALL"
    with duckdb.connect() as database:
        assert database.execute(read, [[file.removeprefix("file://") for file in files]]).fetchall() == lake.expected


def test_fields_of_json_come_as_columns_and_new_ones_later(lake: Lake) -> None:
    lake.put("orders", b'{"id": 1, "to": {"city": "A"}}')
    lake.load(decode="json", valueSchema="id bigint, to struct<city: string>")
    lake.put("orders", b'{"id": 2, "to": {"city": "B", "zip": "9"}, "marks": ["x"]}')
    lake.load(decode="json", valueSchema="marks array<string>, id bigint, to struct<city: string, zip: string>")
    rows = [(row["id"], row["to"], row["marks"]) for row in lake.rows()]
    assert rows == [(1, {"city": "A", "zip": None}, None), (2, {"city": "B", "zip": "9"}, ["x"])]
    assert "body" not in lake.rows()[0]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("id bigint", "column 'to' of the table is not among"),
        ("id int, to struct<city: string>", "column 'id' is int64 there and int32"),
        ("id string, to struct<city: string>", "column 'id' is int64 there and string"),
        ("id bigint, to struct<town: string>", "column to.'city' of the table"),
        ("ID bigint, to struct<city: string>", "column 'ID' is called 'id' there"),
    ],
)
def test_a_schema_that_takes_something_away_is_refused_before_anything_is_written(
    lake: Lake, schema: str, why: str
) -> None:
    lake.put("orders", b'{"id": 1, "to": {"city": "A"}}')
    lake.load(decode="json", valueSchema="id bigint, to struct<city: string>")
    lake.put("orders", b"{}")
    version = lake.version
    with pytest.raises(SchemaRefused, match=why):
        lake.load(decode="json", valueSchema=schema)
    with pytest.raises(SchemaRefused, match="is not among"):
        lake.load()
    assert lake.version == version
    assert len(lake.rows()) == 1


def test_numbers_become_wider_where_the_format_keeps_both(lake: Lake) -> None:
    narrow = "id int, to struct<x: float>, many array<int>, price decimal(5,2)"
    wide = "id bigint, to struct<x: double>, many array<bigint>, price decimal(12,2)"
    lake.put("orders", b'{"id": 1, "to": {"x": 1.5}, "many": [2], "price": 1.25}')
    lake.load(decode="json", valueSchema=narrow)
    lake.put("orders", b'{"id": 1099511627776, "to": {"x": 1e300}, "many": [1099511627776], "price": 1234567.25}')
    if lake.format == "delta":
        with pytest.raises(SchemaRefused, match="column 'id' is int32 there and int64 in these rows; only new columns"):
            lake.load(decode="json", valueSchema=wide)
        return
    lake.load(decode="json", valueSchema=wide)
    rows = [{name: row[name] for name in ("id", "to", "many", "price")} for row in lake.rows()]
    assert rows == [
        {"id": 1, "to": {"x": 1.5}, "many": [2], "price": Decimal("1.25")},
        {"id": 1 << 40, "to": {"x": 1e300}, "many": [1 << 40], "price": Decimal("1234567.25")},
    ]
    for back in (narrow, wide.replace("12,2", "12,3"), wide.replace("id bigint", "id double")):
        with pytest.raises(SchemaRefused, match="only new columns, and wider numbers, may come"):
            lake.load(decode="json", valueSchema=back)


def test_avro_with_more_fields(lake: Lake) -> None:
    first = [{"name": "id", "type": "long"}]
    more = [*first, {"name": "note", "type": ["null", "string"]}, {"name": "small", "type": "int"}]
    values = [{"id": 7}, {"id": 8, "note": "n", "small": 3}]
    for fields, value in zip((first, more), values, strict=True):
        schema = {"type": "record", "name": "Order", "fields": fields}
        body = io.BytesIO()
        fastavro.schemaless_writer(body, schema, value)
        lake.put("orders", body.getvalue())
        lake.load(decode="avro", avroSchema=json.dumps(schema))
    assert [(row["id"], row["note"], row["small"]) for row in lake.rows()] == [(7, None, None), (8, "n", 3)]


def test_a_body_that_cannot_be_decoded_ends_the_load_or_is_reported_in_a_column(lake: Lake) -> None:
    lake.put("orders", b'{"id": 1}', b"no json", b'{"id": 3}')
    with pytest.raises(MalformedData, match="as json"):
        lake.load(decode="json", valueSchema="id bigint")
    lake.load(decode="json", valueSchema="id bigint", mode="permissive")
    assert [row["id"] for row in lake.rows()] == [1, None, 3]
    assert [bool(row["_error"]) for row in lake.rows()] == [False, True, False]
    lake.put("orders", b'{"id": 4}')
    lake.load(decode="json", valueSchema="id bigint")
    assert [row["id"] for row in lake.rows()] == [1, None, 3, 4]


def test_a_damaged_record_ends_the_load_or_is_one_row_that_tells_of_it(lake: Lake) -> None:
    lake.fill(30)
    offset = lake.store.offsets[14]
    segment = lake.store.root / "commitlog" / file_name(offset - offset % lake.store.segment_bytes)
    data = bytearray(segment.read_bytes())
    data[offset % lake.store.segment_bytes + 4] ^= 0xFF
    segment.write_bytes(data)
    with pytest.raises(StoreError, match=str(offset)):
        lake.load()
    assert [one.rows for one in lake.load(mode="permissive")] == [30]
    assert lake.load(mode="permissive") == []
    rows = lake.rows()
    assert [(row["queueId"], row["queueOffset"]) for row in rows] == [place[1:3] for place in lake.expected]
    assert [row["physicalOffset"] for row in rows if row["_error"]] == [offset]


def test_a_field_that_is_called_as_a_messages_column_is_refused_unless_that_is_left_out(lake: Lake) -> None:
    lake.put("orders", b'{"topic": "mine"}')
    with pytest.raises(InvalidOption, match="column 'topic' is there twice"):
        lake.load(decode="json", valueSchema="topic string")
    lake.load(decode="json", valueSchema="topic string", columns=["queueOffset", "body"])
    assert lake.table().to_pylist() == [{"queueOffset": 0, "topic": "mine"}]


def test_a_table_for_each_topic(lake: Lake) -> None:
    lake.fill(10, "orders")
    lake.fill(5, "returns")
    prefix = "raw." if lake.format == "iceberg" else f"{lake.directory}/"
    commits = lake.load(name=prefix + "{topic}")
    assert [(one.table, one.rows) for one in commits] == [(f"{prefix}orders", 10), (f"{prefix}returns", 5)]
    assert lake.load(name=prefix + "{topic}") == []
    lake.name = f"{prefix}returns"
    assert lake.places() == [place for place in lake.expected if place[0] == "returns"]


def test_topics_may_be_added_and_only_those_named_are_loaded(lake: Lake) -> None:
    lake.fill(4, "orders")
    lake.fill(4, "returns")
    lake.load(topics=["orders"])
    lake.fill(4, "orders")
    assert [one.rows for one in lake.load(topics=["returns"])] == [4]
    assert [one.rows for one in lake.load()] == [4]
    assert lake.places() == lake.expected
    with pytest.raises(UnknownTopic, match="no topic 'order'"):
        lake.load(topics=["order"])


def test_what_is_refused_leaves_no_table_behind(lake: Lake) -> None:
    lake.fill(4)
    with pytest.raises(UnknownTopic):
        lake.load(topics=["order"])
    with pytest.raises(NoSuchTableError if lake.format == "iceberg" else TableNotFoundError):
        _ = lake.version


def test_a_load_that_begins_at_the_end_has_what_comes_then_also_after_a_restart(lake: Lake) -> None:
    lake.fill(20)
    lake.load(startingOffsets="latest")
    lake.fill(6)
    lake.load(startingOffsets="latest")
    assert lake.places() == sorted(lake.sent[20:])


def other_log(lake: Lake, directory: Path, bodies: int) -> str:
    """A store of the same broker's name with the same places and sizes, of another time."""
    other = SmallStore(directory / "log", lake.store.segment_bytes)
    for number in range(bodies):
        _, _, topic, queue_id, _ = lake.store.records[number]
        other.put(topic, lake.sent[number][3] or b"", queue_id, store_timestamp_ms=1_700_000_000_001)
    other.dispatch()
    return str(other.root)


def test_a_table_goes_on_with_its_own_log_only(lake: Lake, tmp_path: Path) -> None:
    lake.fill(30)
    lake.load()
    lake.fill(10)
    with pytest.raises(OtherLog, match="another one there: another history"):
        lake.load(store=other_log(lake, tmp_path / "other", 40))
    with pytest.raises(OtherLog, match=r"ends at \d+ .cut since, or a replica that was behind"):
        lake.load(store=other_log(lake, tmp_path / "short", 5))
    renamed = shutil.copytree(lake.store.root, tmp_path / "renamed")
    with pytest.raises(OtherLog, match="has offsets of the log of log, and this is renamed"):
        lake.load(store=str(renamed))
    assert len(lake.rows()) == 30
    copy = shutil.copytree(lake.store.root, tmp_path / "copy" / "log")
    assert [one.rows for one in lake.load(store=str(copy))] == [10], "a replica that is as far may go on"
    assert lake.places() == lake.expected


def test_a_topic_that_was_made_anew_is_reported(lake: Lake) -> None:
    lake.fill(12)
    lake.fill(4, "returns")
    lake.load()
    shutil.rmtree(lake.store.root / "consumequeue" / "orders")
    anew = [record for record in lake.store.records if record[2] != "orders"]
    lake.store.records[:] = anew
    first = len(lake.sent)
    lake.put("orders", b"again", b"and again")
    with pytest.raises(DataLost, match=r"topic orders queue 0.*the topic was created anew"):
        lake.load()
    lake.load(failOnDataLoss=False)
    assert sorted(lake.places()) == sorted(lake.sent)
    assert lake.sent[first:][0][2] == 0


def test_what_retention_has_deleted_ends_the_load_or_is_left_out(lake: Lake) -> None:
    lake.fill(60)
    lake.load()
    lake.fill(240)
    log = lake.store.root / "commitlog"
    for base in range(0, lake.store.offsets[120], lake.store.segment_bytes):
        (log / file_name(base)).unlink()
    with pytest.raises(DataLost, match=r"were deleted before they were read.*--on-loss go-on"):
        lake.load()
    assert len(lake.rows()) == 60
    lake.load(failOnDataLoss=False)
    first = min(int(path.name) for path in log.iterdir())
    there = [place for place, at in zip(lake.sent, lake.store.offsets, strict=True) if at >= first]
    assert lake.places() == sorted([*lake.sent[:60], *there])
    lake.fill(3)
    assert [one.rows for one in lake.load()] == [3]


def test_offsets_outlive_the_snapshots_and_the_log_of_the_table(lake: Lake) -> None:
    lake.fill(20)
    lake.load(max_rows=5)
    if lake.format == "iceberg":
        table = lake.iceberg()
        table.overwrite(table.scan().to_arrow())
        for snapshot in lake.iceberg().metadata.snapshots[:-1]:
            lake.iceberg().maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
        assert len(lake.iceberg().metadata.snapshots) == 1
    else:
        lake.delta().optimize.compact()
        lake.delta().create_checkpoint()
        log = Path(lake.name) / "_delta_log"
        for version in log.glob("*.json"):
            if int(version.stem) < lake.delta().version():
                version.unlink()
    assert lake.load() == []
    lake.fill(5)
    lake.load()
    assert lake.places() == lake.expected


def test_an_empty_table_of_somebodys_is_taken_with_its_partitions(lake: Lake) -> None:
    lake.make_partitioned(table_schema(read_names(None, DEFAULT_ROWS), DEFAULT_ROWS))
    lake.fill(10, "orders")
    lake.fill(10, "returns")
    lake.load(max_rows=15)
    assert lake.places() == lake.expected
    files = (
        [task.file.file_path for task in lake.iceberg().scan().plan_files()]
        if lake.format == "iceberg"
        else (lake.delta().file_uris())
    )
    assert len(files) == 3, "orders; returns in two commits"
    lake.fill(3)
    lake.load()
    assert lake.places() == lake.expected


def test_two_brokers_make_one_table_and_both_have_to_be_given_again(lake: Lake, tmp_path: Path) -> None:
    lake.fill(20)
    other = SmallStore(tmp_path / "other", 8192)
    for number in range(12):
        other.put("orders", b"o%d" % number, number % 2, store_timestamp_ms=1_700_000_000_777)
    other.dispatch()
    both = [str(lake.store.root), str(other.root)]
    assert sum(one.rows for one in lake.load(store=both, max_rows=10)) == 32
    brokers = [row["brokerName"] for row in lake.rows()]
    assert (brokers.count("log"), brokers.count("other")) == (20, 12)
    lake.fill(4)
    with pytest.raises(OtherLog, match="has offsets of the log of other, and this is log"):
        lake.load()
    assert [one.rows for one in lake.load(store=both)] == [4]


def test_a_table_with_rows_of_others_is_not_loaded(lake: Lake) -> None:
    lake.fill(5)
    lake.load()
    if lake.format == "iceberg":
        with lake.iceberg().transaction() as transaction:
            transaction.remove_properties("slipstream.offsets")
    else:
        shutil.rmtree(lake.name)
        import deltalake

        deltalake.write_deltalake(lake.name, scan(str(lake.store.root), columns=list(COLUMNS)).read_all())
    with pytest.raises(TableNotOurs, match="their messages are unknown"):
        lake.load()
    assert len(lake.rows()) == 5


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2, "stores": {}}', '{"log": {"orders": "x"}}'])
def test_invalid_offsets_end_the_load(lake: Lake, text: str) -> None:
    lake.fill(5)
    lake.load()
    lake.set_offsets(text)
    with pytest.raises(OffsetsDamaged, match="load a new table"):
        lake.load()
    assert len(lake.rows()) == 5
