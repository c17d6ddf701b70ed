"""Metadata tables against RocketMQ's own manifests, without a JVM; and on stores whose queues are behind."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from spark_bridge.options.read import parse_options
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan.stores import resolve_stores
from spark_bridge.tables.columns import TABLES
from spark_bridge.tables.reader import TableReader, table_schema
from spark_bridge.tables.rows import queue_rows, rows_of
from store.files.directory import StoreDirectory
from store.message.topics import is_lmq, is_system_topic
from tests.spark_bridge.stores import GOLDEN_STORES, SmallStore, golden_lines, unpack_golden

Row = dict[str, Any]


def table_of(root: str, table: str, **options: str) -> list[Row]:
    """What Spark gets of a table."""
    parsed = parse_options({"path": root, "table": table, **options})
    reader = TableReader(table_schema(table), parsed)
    (partition,) = reader.partitions()
    return [row for batch in reader.read(partition) for row in batch.to_pylist()]


def milliseconds(row: Row, column: str) -> int | None:
    return None if row[column] is None else round(row[column].timestamp() * 1000)


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES)
def test_queues_are_those_of_the_manifest_with_its_counts_offsets_and_times(version, name, tmp_path):
    root = unpack_golden(version, name, tmp_path)
    by_queue: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for line in golden_lines(version, name, "message"):
        copies = int(line["properties"].get("INNER_NUM", 1))
        by_queue[line["topic"], line["queueId"]] += [line] * copies
    expected = {
        key: (
            len(lines), lines[0]["storeTimestamp"], lines[-1]["storeTimestamp"], lines[0]["physicalOffset"],
            lines[-1]["physicalOffset"],
        )
        for key, lines in by_queue.items()
    }  # fmt: skip
    found = {
        (row["topic"], row["queueId"]): (
            row["count"], milliseconds(row, "minTimestamp"), milliseconds(row, "maxTimestamp"),
            row["minPhysicalOffset"], row["maxPhysicalOffset"],
        )
        for row in table_of(root, "queues", includeSystemTopics="true")
        if row["count"]
    }  # fmt: skip
    assert found == expected
    ends = {
        (line["topic"], line["queueId"]): (line["minOffset"], line["maxOffset"])
        for line in golden_lines(version, name, "queue")
        if not is_lmq(line["topic"])
    }
    rows = {(row["topic"], row["queueId"]): row for row in table_of(root, "queues", includeSystemTopics="true")}
    for key, (first, end) in ends.items():
        assert (rows[key]["minOffset"], rows[key]["maxOffset"]) == (first, end), key
    visible = {row["topic"] for row in table_of(root, "queues")}
    assert visible == {topic for topic, _ in rows if not is_system_topic(topic)}


def test_a_named_multi_dispatch_queue_is_not_counted_by_its_own_name(tmp_path):
    root = unpack_golden("rocketmq-4.9.7", "features", tmp_path)
    assert not any(row["topic"].startswith("%LMQ%") for row in table_of(root, "queues"))


@pytest.mark.parametrize("reput", ["nothing dispatched", "part", "all"])
def test_counts_are_right_wherever_the_dispatcher_is(tmp_path, monkeypatch, reput):
    made = SmallStore(tmp_path / "store", 2048)
    for number in range(40):
        made.put(("orders", "payments")[number % 2], b"x" * number, number % 3, store_timestamp_ms=1000 + number)
    made.dispatch()
    limit = {"nothing dispatched": 0, "part": made.offsets[17], "all": made.end}[reput]
    monkeypatch.setattr("spark_bridge.plan.inventory.find_extent", lambda *_a, **_k: made.extent(limit))
    options = parse_options({"path": str(made.root), "table": "queues"})
    (store,) = resolve_stores(options)
    found = {(row.topic, row.queue_id): row[2:] for row in queue_rows(store, options)}
    for topic, queue_id in {(topic, queue_id) for _, _, topic, queue_id, _ in made.records}:
        numbers = [n for n, record in enumerate(made.records) if record[2:4] == (topic, queue_id)]
        offsets = [made.offsets[number] for number in numbers]
        expected = (0, len(numbers), len(numbers), 1000 + numbers[0], 1000 + numbers[-1], offsets[0], offsets[-1])
        assert found[topic, queue_id] == expected


def test_topics_segments_replicas_and_groups_of_a_golden_store(tmp_path):
    version, name = "rocketmq-5.3.3", "master"
    root = unpack_golden(version, name, tmp_path)
    messages = golden_lines(version, name, "message")
    topics = {row["topic"]: row for row in table_of(root, "topics")}
    assert topics["alphaEight"]["queues"] == topics["alphaEight"]["readQueueNums"] == 8
    assert topics["alphaEight"]["count"] == sum(line["topic"] == "alphaEight" for line in messages)
    assert topics["alphaOne"]["brokerName"] == "broker-alpha"
    assert topics["%RETRY%G_alpha"]["count"] == 4
    assert not any(is_system_topic(topic) for topic in topics)
    segments = table_of(root, "segments")
    assert [row["baseOffset"] for row in segments] == [262144 * number for number in range(len(segments))]
    assert segments[-1]["endOffset"] == messages[-1]["physicalOffset"] + messages[-1]["size"]
    starts = [line for line in messages if line["physicalOffset"] in {row["baseOffset"] for row in segments}]
    assert [milliseconds(row, "minTimestamp") for row in segments] == [line["storeTimestamp"] for line in starts]
    (replica,) = table_of(root, "replicas")
    assert (replica["maxPhysicalOffset"], replica["role"], replica["pid"]) == (segments[-1]["endOffset"], None, None)
    assert (replica["minPhysicalOffset"], milliseconds(replica, "minTimestamp")) == (0, messages[0]["storeTimestamp"])
    config = (Path(root) / "config" / "consumerOffset.json").read_text()
    groups = {(row["topic"], row["group"], row["queueId"]): row for row in table_of(root, "consumer_groups")}
    assert groups["alphaOne", "G_alpha", 0]["consumerOffset"] == 61
    assert '"alphaOne@G_alpha":{0:61' in config
    first = groups["alphaOne", "G_alpha", 0]
    assert first["lag"] == first["maxOffset"] - 61 == sum(line["topic"] == "alphaOne" for line in messages) - 61


def test_tables_take_topic_options_and_a_pruned_schema_and_say_what_is_wrong(tmp_path):
    root = unpack_golden("rocketmq-4.9.7", "master", tmp_path)
    assert {row["topic"] for row in table_of(root, "queues", subscribePattern="alphaT.*")} == {"alphaTx"}
    named = table_of(root, "queues", topic="SCHEDULE_TOPIC_XXXX,alphaOne")
    assert {row["topic"] for row in named} == {"SCHEDULE_TOPIC_XXXX", "alphaOne"}
    options = parse_options({"path": root, "table": "queues"})
    pruned = table_schema("queues")["count"]
    schema = type(table_schema("queues"))([pruned])
    reader = TableReader(schema, options)
    (batch,) = reader.read(reader.partitions()[0])
    assert batch.schema == to_arrow_schema(schema, timezone="UTC")
    assert sum(batch.column(0).to_pylist()) == sum(row["count"] for row in table_of(root, "queues"))
    with pytest.raises(InvalidOption, match="did you mean 'consumerOffset'"):
        groups = parse_options({"path": root, "table": "consumer_groups"})
        TableReader(type(schema)().add("consumerOfset", "long"), groups)
    with pytest.raises(InvalidOption, match="column queueId of table queues is int"):
        TableReader(type(schema)().add("queueId", "long"), options)


def test_every_row_is_as_long_as_its_tables_columns(tmp_path):
    made = SmallStore(tmp_path / "store", 4096)
    made.put("orders")
    made.dispatch()
    config = made.root / "config"
    config.mkdir()
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"orders@g": {"0": 1}}}))
    StoreDirectory(made.root).create()
    for table, columns in TABLES.items():
        options = parse_options({"path": str(made.root), "table": table})
        (row,) = rows_of(table, resolve_stores(options), options)
        assert len(row) == len(columns), table
