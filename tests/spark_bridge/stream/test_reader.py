"""A stream's reader as Spark drives it, without Spark: several stores, patterns, times, limits of both kinds."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from spark_bridge.records.spark_schema import schema_of
from spark_bridge.stream import stores
from spark_bridge.stream.offsets import DataLost, OffsetsMismatch
from spark_bridge.stream.reader import RocketMQStreamReader
from tests.spark_bridge.replica.test_replica import Broker
from tests.spark_bridge.stores import SmallStore

Row = tuple[Any, ...]
NAMES = ["brokerName", "topic", "queueId", "queueOffset"]


def reader_of(path: object, **options: str) -> RocketMQStreamReader:
    return RocketMQStreamReader(schema_of(NAMES), {"path": str(path), **options})


def rows(reader: RocketMQStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
    batches = [batch for partition in reader.partitions(start, end) for batch in reader.read(partition)]
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())


def put(store: SmallStore, topics: tuple[str, ...], count: int, **fields: Any) -> list[Row]:
    """Messages in turn to some topics, two queues each."""
    first = len(store.records)
    for number in range(first, first + count):
        store.put(topics[number % len(topics)], queue_id=number // len(topics) % 2, **fields)
    store.dispatch()
    return [(store.root.parent.name, *record[2:]) for record in store.records[first:]]


def test_several_stores_are_one_stream_and_another_one_joins_it(tmp_path: Path) -> None:
    north, south, west = (SmallStore(tmp_path / name / "store", 4096) for name in ("north", "south", "west"))
    sent = put(north, ("orders", "payments"), 30) + put(south, ("payments", "orders"), 10)
    reader = reader_of(tmp_path / "*" / "store", maxOffsetsPerTrigger="9")
    assert reader.getDefaultReadLimit() == ReadMaxRows(9)
    start = at = reader.initialOffset()
    assert sorted(at) == ["north", "south"]
    read: list[Row] = []
    while (end := reader.latestOffset(at, ReadMaxRows(9))) != at:
        got = rows(reader, at, end)
        assert len(got) <= 9
        read, at = read + got, end
    assert sorted(read) == sorted(sent) == rows(reader, start, at)
    assert json.dumps(reader.reportLatestOffset()) == json.dumps(at)
    more = put(west, ("orders",), 3)
    again = reader_of(tmp_path / "*" / "store")
    end = again.latestOffset(at, ReadAllAvailable())
    assert rows(again, at, end) == sorted(more)
    with pytest.raises(OffsetsMismatch, match="new checkpointLocation"):
        reader_of(north.root).latestOffset(at, ReadAllAvailable())


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"subscribePattern": "pay.*"}, {("payments", 0), ("payments", 1)}),
        ({"assign": '{"orders":[1]}'}, {("orders", 1)}),
        ({"topic": "orders"}, {("orders", 0), ("orders", 1)}),
        ({}, {("orders", 0), ("orders", 1), ("payments", 0), ("payments", 1)}),
        ({"topic": "TBW102"}, {("TBW102", 0), ("TBW102", 1)}),
    ],
)
def test_a_stream_reads_the_topics_and_queues_that_its_options_select(
    tmp_path: Path, options: dict[str, str], wanted: set[tuple[str, int]]
) -> None:
    store = SmallStore(tmp_path / "north" / "store", 4096)
    put(store, ("orders", "payments", "TBW102"), 36)
    reader = reader_of(store.root, **options)
    start = reader.initialOffset()
    found = rows(reader, start, reader.latestOffset(start, ReadAllAvailable()))
    assert {row[1:3] for row in found} == wanted
    assert len(found) == 6 * len(wanted)


def test_a_stream_starts_at_a_time_and_at_its_end(tmp_path: Path) -> None:
    store = SmallStore(tmp_path / "north" / "store", 4096)
    put(store, ("orders",), 10, store_timestamp_ms=1000)
    late = put(store, ("orders",), 6, store_timestamp_ms=5000)
    reader = reader_of(store.root, startingTimestamp="5000")
    start = reader.initialOffset()
    assert start == {"orders": {"0": 5, "1": 5}}
    assert rows(reader, start, reader.latestOffset(start, ReadAllAvailable())) == sorted(late)
    assert reader_of(store.root, startingOffsets="latest").initialOffset() == {"orders": {"0": 8, "1": 8}}
    named = reader_of(store.root, startingOffsets='{"orders":{"0":3,"1":-1}}')
    assert named.initialOffset() == {"orders": {"0": 3, "1": 8}}


def test_a_batch_waits_for_rows_but_available_now_does_not(tmp_path: Path) -> None:
    store = SmallStore(tmp_path / "north" / "store", 4096)
    put(store, ("orders",), 10)
    options = {"minOffsetsPerTrigger": "8", "maxTriggerDelay": "1h"}
    reader = reader_of(store.root, **options)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(8)
    first = reader.latestOffset(reader.initialOffset(), limit)
    put(store, ("orders",), 4)
    assert reader.latestOffset(first, limit) == first, "4 rows are not enough"
    assert reader.latestOffset(first, ReadAllAvailable()) != first, "a trigger that takes all takes all"
    now = reader_of(store.root, **options)
    now.prepareForTriggerAvailableNow()
    put(store, ("orders", "payments"), 20)
    end = now.latestOffset(first, limit)
    assert len(rows(now, first, end)) == 4, "what came later is for the next query"
    assert now.latestOffset(end, limit) == end


def test_available_now_is_what_is_in_the_log_also_where_the_dispatcher_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SmallStore(tmp_path / "north" / "store", 4096)
    put(store, ("orders",), 10)
    broker = Broker(store.root, tmp_path / "regions", store.offsets[4], store.end)
    monkeypatch.setattr(stores, "DISPATCH_S", 0.0)
    now = reader_of(store.root)
    now.prepareForTriggerAvailableNow()
    assert now.latestOffset({}, ReadAllAvailable()) == {"orders": {"0": 2, "1": 2}}, "it does not wait for ever"
    monkeypatch.setattr(stores, "DISPATCH_S", 120.0)
    monkeypatch.setattr(time, "sleep", lambda _seconds: broker.is_at(store.end, store.end))
    now = reader_of(store.root)
    now.prepareForTriggerAvailableNow()
    assert now.latestOffset({}, ReadAllAvailable()) == {"orders": {"0": 5, "1": 5}}


def test_a_replica_that_lost_messages_is_named_and_read_on_from_its_end_only_on_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SmallStore(tmp_path / "north" / "store", 4096)
    put(store, ("orders",), 10)
    ahead = {"orders": {"0": 9, "1": 5}}
    with pytest.raises(DataLost, match="topic orders queue 0: it was read to offset 9 but ends at 5"):
        reader_of(store.root).latestOffset(ahead, ReadAllAvailable())
    with pytest.raises(DataLost, match="reaches offset 9, and the queue ends at 5"):
        reader_of(store.root).partitions({"orders": {"0": 2, "1": 5}}, ahead)
    reader = reader_of(store.root, failOnDataLoss="false")
    end = reader.latestOffset(ahead, ReadAllAvailable())
    assert end == {"orders": {"0": 5, "1": 5}}
    assert rows(reader, ahead, end) == []
    assert "DATA_LOST: topic orders queue 0: it was read to offset 9 but ends at 5" in caplog.text
    more = put(store, ("orders",), 2)
    assert rows(reader, end, reader.latestOffset(end, ReadAllAvailable())) == sorted(more)
