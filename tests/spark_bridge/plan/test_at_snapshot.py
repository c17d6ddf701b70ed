"""Reads at a snapshot: the rows of that moment however the log has grown, or what has become of them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ipc.clock import wall_ms
from spark_bridge.options.read import parse_options
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan.planner import plan_read
from spark_bridge.records.spark_schema import schema_of
from spark_bridge.scanning import scan
from spark_bridge.stream.options import parse_stream_options
from spark_bridge.stream.reader import RocketMQStreamReader
from store.errors import OwnFileDamaged
from store.files.segment import file_name
from store.upkeep import snapshot_state, snapshots
from store.upkeep.snapshots import SnapshotForeign, SnapshotGone, SnapshotRefused, SnapshotUnknown
from tests.spark_bridge.flights import TOKEN, served
from tests.spark_bridge.replica.test_replica import Broker
from tests.spark_bridge.stores import SmallStore, read_rows

HOUR_MS = 3_600_000
NAMES = ["topic", "queueId", "queueOffset"]
Place = tuple[str, int, int]


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    made = SmallStore(tmp_path / "north" / "store", 4096)
    put(made, 60)
    return made


def put(store: SmallStore, count: int, topics: tuple[str, ...] = ("orders", "payments")) -> list[Place]:
    first = len(store.records)
    for number in range(first, first + count):
        store.put(topics[number % len(topics)], queue_id=number // 2 % 2, properties=b"KEYS\x01k%d\x02" % (number % 5))
    store.dispatch()
    return sorted(record[2:] for record in store.records[first:])


def take(store: SmallStore, name: str) -> list[Place]:
    """Take it; the rows of that moment."""
    snapshot_state.take(store.root, name, HOUR_MS)
    return sorted(record[2:] for record in store.records)


def read(store: SmallStore | Path, **options: str) -> list[Place]:
    root = store.root if isinstance(store, SmallStore) else store
    splits = plan_read(parse_options({"path": str(root), **options}))
    return sorted(tuple(row.values()) for row in read_rows(splits, NAMES))


@pytest.mark.parametrize(
    "options",
    [
        {}, {"topic": "orders"}, {"subscribePattern": "o.*"}, {"topic": "orders", "keys": "k1"},
        {"assign": '{"orders":[1]}'}, {"topic": "orders", "minPartitions": "7"}, {"maxRecordsPerPartition": "7"},
        {"topic": "orders", "startingTimestamp": "0"}, {"where": '{"topic":["orders"],"queueId":[0]}'},
        {"startingOffsets": '{"orders":{"0":3,"1":-2}}'},
    ],
    ids=str,
)  # fmt: skip
def test_two_reads_agree_while_the_log_grows(store: SmallStore, options: dict[str, str]) -> None:
    before = read(store, **options)
    take(store, "then")
    assert before and read(store, snapshot="then", **options) == before
    put(store, 150, ("orders", "payments", "returns"))
    assert read(store, snapshot="then", **options) == before
    assert read(store, **options) != before


def test_what_came_between_two_snapshots_and_since_the_last(store: SmallStore) -> None:
    first = take(store, "first")
    between = put(store, 90, ("orders", "returns"))
    take(store, "second")
    since = put(store, 40)
    for options in ({}, {"topic": "orders,payments,returns"}):
        assert read(store, snapshot="first", **options) == first
        assert read(store, startingSnapshot="first", snapshot="second", **options) == between
        assert read(store, startingSnapshot="second", **options) == since
        assert read(store, startingSnapshot="second", snapshot="second", **options) == []
    with pytest.raises(InvalidOption, match="startingSnapshot='second' is later than snapshot='first'"):
        read(store, startingSnapshot="second", snapshot="first")


def test_an_unknown_foreign_expired_or_damaged_snapshot_is_an_error(store: SmallStore, tmp_path: Path) -> None:
    with pytest.raises(SnapshotUnknown, match="known: none"):
        read(store, snapshot="then")
    take(store, "then")
    copy = tmp_path / "copy"
    shutil.copytree(store.root, copy)
    with pytest.raises(SnapshotForeign, match="a copy"):
        read(copy, snapshot="then")
    expired = replace(snapshots.read(store.root, "then"), expires_ms=wall_ms() - 1)
    snapshots.write(store.root, expired)
    with pytest.raises(SnapshotGone, match="has expired"):
        read(store, snapshot="then")
    snapshots.path_of(store.root, "then").write_bytes(b"{}")
    with pytest.raises(OwnFileDamaged):
        read(store, snapshot="then")


def test_a_deleted_range_is_an_error_and_left_out_only_on_request(
    store: SmallStore, caplog: pytest.LogCaptureFixture
) -> None:
    rows = take(store, "then")
    put(store, 100)
    (store.root / "commitlog" / file_name(0)).unlink()
    with pytest.raises(SnapshotGone, match=r"retention has deleted its log from offset 0 to 4096"):
        read(store, snapshot="then")
    left = sorted(record[2:] for record in store.records if record[0] >= 4096)
    assert read(store, snapshot="then", failOnDataLoss="false") == [row for row in left if row in rows]
    assert "left out, as failOnDataLoss=false says" in caplog.text
    assert read(store, startingSnapshot="then") == [row for row in left if row not in rows], "it needs none of that"


def test_a_log_that_was_cut_and_written_again_is_another_one(store: SmallStore) -> None:
    take(store, "then")
    for path in (store.root / "commitlog").iterdir():
        path.unlink()
    shutil.rmtree(store.root / "consumequeue")
    other = SmallStore(store.root, 4096)
    put(other, 10)
    with pytest.raises(SnapshotGone, match="was cut below the snapshot's end"):
        read(other, snapshot="then")
    put(other, 150, ("orders", "payments", "x"))
    with pytest.raises(SnapshotForeign, match="other bytes"):
        read(other, snapshot="then")


def test_a_deleted_topic_is_still_read_and_one_made_anew_is_reported(store: SmallStore) -> None:
    rows = [row for row in take(store, "then") if row[0] == "orders"]
    shutil.rmtree(store.root / "consumequeue" / "orders")
    for options in ({"topic": "orders"}, {"subscribePattern": "orde.*"}):
        assert read(store, snapshot="then", **options) == rows, "it is looked for in the log"
    again = SmallStore(store.root, 4096, end=store.end)
    put(again, 80, ("orders",))
    for options in ({"topic": "orders"}, {"subscribePattern": "orde.*"}):
        with pytest.raises(SnapshotGone, match=r"queue 0 of topic 'orders' ended at 15 .* the topic was created anew"):
            read(again, snapshot="then", **options)
    assert [row for row in read(again, snapshot="then") if row[0] == "orders"] == rows, "the log alone is asked"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"snapshot": "../x"}, "snapshot='../x': not a name for a snapshot"),
        ({"startingSnapshot": ""}, "not a name for a snapshot"),
        ({"snapshot": "a", "endingOffsets": "latest"}, "say the same thing twice"),
        ({"startingSnapshot": "a", "startingTimestamp": "-1h"}, "say the same thing twice"),
        ({"snapshot": "a", "onlyConfirmed": "true"}, "both say where a read ends"),
        ({"snapshot": "a", "table": "queues"}, "belongs to a read of messages"),
    ],
)
def test_options_that_contradict_it_are_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidOption, match=told):
        parse_options({"path": "/s", **options})


def test_a_stream_begins_behind_a_snapshot_and_has_no_end(store: SmallStore) -> None:
    with pytest.raises(InvalidOption, match="option snapshot is one of batch reads"):
        parse_stream_options({"path": "/s", "snapshot": "then"})
    take(store, "then")
    since = put(store, 90, ("orders", "returns"))

    def reader() -> RocketMQStreamReader:
        return RocketMQStreamReader(schema_of(NAMES), {"path": str(store.root), "startingSnapshot": "then"})

    stream = reader()
    start: dict[str, Any] = stream.initialOffset()
    assert start == {"orders": {"0": 15, "1": 15}, "payments": {"0": 15, "1": 15}, "returns": {"0": 0, "1": 0}}
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    batches = [batch for partition in stream.partitions(start, end) for batch in stream.read(partition)]
    assert sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist()) == since
    shutil.rmtree(store.root / "consumequeue" / "orders")
    again = SmallStore(store.root, 4096, end=store.end)
    put(again, 80, ("orders",))
    with pytest.raises(SnapshotGone, match="the topic was created anew"):
        reader().initialOffset()
    with pytest.raises(SnapshotUnknown):
        RocketMQStreamReader(schema_of(NAMES), {"path": str(store.root), "startingSnapshot": "no"}).initialOffset()


def test_reads_without_spark_and_through_flight_have_the_same_moment(store: SmallStore) -> None:
    rows = take(store, "then")
    since = put(store, 90)

    def scanned(place: str, **options: str) -> list[Place]:
        return sorted(tuple(row.values()) for row in scan(place, columns=NAMES, **options).read_all().to_pylist())

    with served(store.root) as server:
        for place, more in ((str(store.root), {}), (server.location, {"flightToken": TOKEN})):
            assert scanned(place, snapshot="then", **more) == rows
            assert scanned(place, startingSnapshot="then", topic="orders,payments", **more) == since
            with pytest.raises(Exception, match="no snapshot 'never'; known: then"):
                scanned(place, snapshot="never", **more)


def test_a_broker_that_is_still_dispatching_has_no_snapshot_but_a_slaves_half_record_is_left_out(
    store: SmallStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_state, "HALF_RECORD_BYTES_MAX", 100)
    broker = Broker(store.root, tmp_path / "regions", store.offsets[40], store.offsets[40] + 100)
    assert snapshot_state.take(store.root, "slaves", HOUR_MS, settle_s=0.0).end_offset == store.offsets[40]
    assert read(store, snapshot="slaves") == sorted(record[2:] for record in store.records[:40])
    broker.is_at(store.offsets[40], store.offsets[40] + 101)
    with pytest.raises(SnapshotRefused, match="101 bytes of the log are not in the queues after 0 s"):
        snapshot_state.take(store.root, "more", HOUR_MS, settle_s=0.0)
    assert list(snapshots.names(store.root)) == ["slaves"]
