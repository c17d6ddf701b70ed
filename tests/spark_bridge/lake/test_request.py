"""What a load is asked for: names of tables, options, fields; what cannot be is refused before a table is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_bridge.options.values import InvalidOption
from tests.harness.command_line import run
from tests.spark_bridge.lakes import FORMATS, Lake


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path, request.param)


def test_a_table_for_each_topic_whatever_it_is_called(lake: Lake) -> None:
    topics = ["%RETRY%accounts", "%DLQ%g", "a|b", "a%20b", "Orders", "orders"]
    for number, topic in enumerate(topics):
        lake.fill(number + 1, topic)
    prefix = "raw." if lake.format == "iceberg" else f"{lake.directory}/of-"
    loaded = {one.table: one.rows for one in lake.load(name=prefix + "{topic}")}
    assert sorted(loaded.values()) == [1, 2, 3, 4, 5, 6]
    assert lake.load(name=prefix + "{topic}") == []
    for table, rows in loaded.items():
        lake.name = table
        read = lake.rows()
        assert len(read) == rows
        assert {row["topic"] for row in read} == {topics[rows - 1]}
    assert (f"{prefix}~25RETRY~25accounts" if lake.format == "delta" else f"{prefix}%RETRY%accounts") in loaded


def test_a_table_that_cannot_be_called_so_is_refused_before_anything_is_made(lake: Lake) -> None:
    lake.fill(1)
    bad = (".raw.x", "raw.x.", "raw. .x", "raw") if lake.format == "iceberg" else ("a|b", "a%20b", " ")
    for name in bad:
        with pytest.raises(InvalidOption, match="--table"):
            lake.load(name=name if lake.format == "iceberg" or name == " " else str(lake.directory / name))
    for argument in ("topics", "columns"):
        with pytest.raises(InvalidOption, match="a list of texts"):
            lake.load(**{argument: "topic"})
    assert [path.name for path in lake.directory.iterdir()] == ["log"]


def test_options_that_a_load_would_ignore_are_refused_and_a_time_may_be_its_beginning(lake: Lake) -> None:
    lake.put("orders", b"old", store_timestamp_ms=1_795_000_000_000)
    lake.put("orders", b"new", store_timestamp_ms=1_795_000_001_000)
    lake.fill(1, "returns")
    for given, told in (
        ({"schema": "kafka"}, "are arguments"),
        ({"Path": "/elsewhere"}, "are arguments"),
        ({"Topic": "returns", "topics": ["orders"]}, "already given"),
    ):
        with pytest.raises(InvalidOption, match=told):
            lake.load(**given)
    table = ["--to", "delta", "--table", str(lake.directory / "timed")]
    begin = ["--option", "startingTimestamp=1795000001000", "--topic", "orders"]
    ran = run("lake", lake.store.root, *table, "--once", *begin)
    assert (ran.exit_code, ran.stdout.splitlines()[-1:]) == (0, ["1 row in 1 commit"]), ran.output


def test_a_beginning_behind_a_queues_end_is_refused_and_makes_no_table(lake: Lake) -> None:
    lake.fill(6, queues=1)
    with pytest.raises(InvalidOption, match="queue 0 of topic orders is to begin at 7 and ends at 6"):
        lake.load(startingOffsets='{"orders":{"0":7}}')
    lake.load(startingOffsets='{"orders":{"0":6}}')
    lake.fill(2, queues=1)
    lake.load()
    assert lake.places() == lake.expected[-2:]


@pytest.mark.parametrize("schema", ["p struct<>", "p array<struct<>>", "p struct<q: struct<>>"])
def test_a_field_that_says_nothing_is_refused_before_anything_is_made(lake: Lake, schema: str) -> None:
    lake.put("orders", b"{}")
    with pytest.raises(InvalidOption, match="no fields of its own, which no table stores"):
        lake.load(decode="json", valueSchema=schema)
    assert [path.name for path in lake.directory.iterdir()] == ["log"]
