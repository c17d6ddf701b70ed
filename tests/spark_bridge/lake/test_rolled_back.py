"""Tables that were rolled back, restored or overwritten: the offsets of the rows that are there count."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from spark_bridge.lake import delta, iceberg
from spark_bridge.lake.errors import OffsetsUnknown, RolledBack, SchemaRefused
from spark_bridge.lake.iceberg import line_of
from spark_bridge.lake.schema import read_names, table_schema
from spark_bridge.options.rows import DEFAULT_ROWS
from tests.spark_bridge.lakes import FORMATS, Lake


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path, request.param)


def load_twice(lake: Lake) -> int:
    """Loads of 30 and 30 rows; how the table was behind the first one."""
    lake.fill(30)
    lake.load()
    first = lake.current
    lake.fill(30)
    lake.load()
    return first


def compact(lake: Lake) -> None:
    """A commit of another program: PyIceberg compacts nothing, it adds no rows."""
    if lake.format == "delta":
        lake.delta().optimize.compact()
    else:
        lake.iceberg().append(lake.table().slice(0, 0))


def test_messages_of_a_load_that_was_rolled_back_come_again(lake: Lake) -> None:
    first = load_twice(lake)
    lake.roll_back(first)
    assert len(lake.rows()) == 30
    lake.fill(10)
    assert sum(one.rows for one in lake.load()) == 40
    assert lake.places() == lake.expected
    assert lake.load() == []


def test_a_rolled_back_table_is_loaded_again_after_commits_of_others(lake: Lake) -> None:
    first = load_twice(lake)
    compact(lake)
    lake.roll_back(first)
    compact(lake)
    assert sum(one.rows for one in lake.load()) == 30
    compact(lake)
    lake.fill(3)
    assert sum(one.rows for one in lake.load()) == 3
    assert lake.places() == lake.expected


def test_rollbacks_one_after_the_other(lake: Lake) -> None:
    marks = []
    for _ in range(3):
        lake.fill(9, "orders", 2)
        lake.fill(3, "returns")
        lake.load()
        marks.append(lake.current)
    lake.roll_back(marks[1])
    lake.roll_back(marks[0])
    lake.load(max_rows=8)
    assert lake.places() == lake.expected
    if lake.format == "delta":
        lake.roll_back(marks[2])  # forwards, to what the first restore took away
    else:
        lake.roll_back(marks[0])
    lake.fill(5)
    lake.load()
    assert lake.places() == lake.expected


def test_a_rollback_to_before_a_queue_was_known_loads_that_queue_from_its_beginning(lake: Lake) -> None:
    lake.fill(10, "orders")
    lake.load()
    first = lake.current
    lake.fill(10, "returns")
    lake.load()
    lake.roll_back(first)
    lake.fill(4, "orders")
    with lake.tables(rows_max=6) as tables:
        tables.open()
        next(tables.commits(is_due=True))
    lake.load()
    assert lake.places() == lake.expected


def test_rows_that_another_program_overwrote_end_the_load(lake: Lake) -> None:
    load_twice(lake)
    lake.overwrite(lake.table().slice(0, 20))
    lake.fill(10)
    with pytest.raises(OffsetsUnknown, match=r"replaced rows.*--on-loss go-on"):
        lake.load()
    assert len(lake.rows()) == 20
    assert sum(one.rows for one in lake.load(failOnDataLoss=False)) == 10
    assert lake.load() == []


def test_rows_that_were_written_anew_with_all_that_there_was_are_no_reason_to_stop(lake: Lake) -> None:
    load_twice(lake)
    lake.overwrite(lake.table())
    lake.fill(10)
    assert sum(one.rows for one in lake.load()) == 10
    assert lake.places() == lake.expected


@pytest.mark.parametrize(
    ("summary", "newer", "is_replaced"),
    [
        ({"deleted-data-files": "2"}, "replace", False),  # a DELETE of whole files, as some engines call it
        ({"deleted-data-files": "2"}, "append", True),
        ({"deleted-data-files": "2", "added-data-files": "1"}, "replace", True),
        ({"added-data-files": "1"}, "append", False),
    ],
)
def test_an_iceberg_overwrite_that_only_takes_files_away_is_a_delete(
    summary: dict[str, str], newer: str, is_replaced: bool
) -> None:
    said = [
        Summary(Operation.APPEND, offsets="{}"),
        Summary(Operation.OVERWRITE, **summary),
        Summary(Operation(newer)),
    ]
    snapshots = {
        number: Snapshot.model_validate(
            {"snapshot-id": number, "parent-snapshot-id": number - 1 or None, "manifest-list": "", "summary": one}
        )
        for number, one in enumerate(said, 1)
    }
    line = line_of(snapshots[3], snapshots.get, "offsets")
    assert (line.ids, line.replaced_by) == ((3, 2, 1), 2 if is_replaced else None)


def test_an_overwritten_table_that_is_put_back_goes_on(lake: Lake) -> None:
    load_twice(lake)
    last = lake.current
    lake.overwrite(lake.table().slice(0, 20))
    lake.roll_back(last)
    lake.fill(10)
    assert sum(one.rows for one in lake.load()) == 10
    assert lake.places() == lake.expected


def test_an_empty_table_of_somebodys_that_is_rolled_back_to_empty_is_loaded_from_the_beginning(lake: Lake) -> None:
    lake.make_partitioned(table_schema(read_names(None, DEFAULT_ROWS), DEFAULT_ROWS))
    if lake.format == "iceberg":
        table = lake.iceberg()
        table.append(table.scan().to_arrow())
    empty = lake.current
    lake.fill(10)
    lake.load()
    lake.roll_back(empty)
    lake.load()
    assert lake.places() == lake.expected


def test_a_table_of_an_earlier_release_goes_on(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    if lake.format == "iceberg":
        lake.fill(30)
        lake.load()
        table = lake.iceberg()
        with table.transaction() as transaction:
            transaction.remove_properties(iceberg.OF_SNAPSHOT)
        rows, text = table.scan().to_arrow(), lake.said_offsets()
        table.overwrite(rows)  # its snapshots do not say offsets
        for snapshot in lake.iceberg().metadata.snapshots[:-1]:
            lake.iceberg().maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
        assert lake.said_offsets() == text
    else:
        with monkeypatch.context() as earlier:
            earlier.setattr("spark_bridge.lake.delta.BUILT_ON", "else")
            earlier.setattr("spark_bridge.lake.delta.MARKED", "else")
            load_twice(lake)
        assert not any(delta.BUILT_ON in entry for entry in lake.delta().history())
    assert lake.load() == []
    lake.fill(10)
    assert sum(one.rows for one in lake.load()) == 10
    assert lake.places() == lake.expected


def test_an_iceberg_table_without_snapshots_that_say_offsets_ends_the_load_when_the_last_row_is_gone(
    tmp_path: Path,
) -> None:
    lake = Lake(tmp_path, "iceberg")
    load_twice(lake)
    last = max(lake.rows(), key=lambda row: row["physicalOffset"])
    lake.iceberg().delete(f"physicalOffset == {last['physicalOffset']}")
    for snapshot in lake.iceberg().metadata.snapshots[:-1]:
        lake.iceberg().maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    with pytest.raises(OffsetsUnknown, match="has offsets, and the last row of snapshot"):
        lake.load()
    assert lake.load(failOnDataLoss=False) == []


def test_a_delta_restore_by_a_time_is_found(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "delta")
    first = load_twice(lake)
    began = time.time() - 60  # versions have the times of their files, whose clock moves in steps of milliseconds
    for version in range(first + 2):
        file = Path(lake.name) / "_delta_log" / f"{version:020}.json"
        os.utime(file, (began + version, began + version))
    lake.delta().restore(dt.datetime.fromtimestamp(began + first + 0.5, dt.UTC))
    there = len(lake.rows())
    assert there == 30
    lake.fill(10)
    assert sum(one.rows for one in lake.load()) == 40
    assert lake.places() == lake.expected


def change_entry(lake: Lake, version: int, **fields: object) -> None:
    """What another engine would have written into a version's commitInfo."""
    path = Path(lake.name) / "_delta_log" / f"{version:020}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"].update(fields)
    path.write_text("\n".join(map(json.dumps, actions)) + "\n")


def test_a_delta_restore_as_spark_writes_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "delta")
    first = load_twice(lake)
    lake.roll_back(first)
    change_entry(lake, lake.current, operationParameters={"version": str(first), "timestamp": None})
    lake.load()
    assert lake.places() == lake.expected
    lake.roll_back(first)
    change_entry(lake, lake.current, operationParameters={"version": None, "timestamp": "2026-01-01"})
    with pytest.raises(OffsetsUnknown, match="does not say which version it brought back"):
        lake.load()


@pytest.mark.parametrize("is_restored", [True, False])
def test_what_takes_rows_away_between_a_loads_look_and_its_commit_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_restored: bool
) -> None:
    lake = Lake(tmp_path, "delta")
    first = load_twice(lake)
    lake.fill(10)
    write, few = deltalake.write_deltalake, lake.table().slice(0, 5)

    def reverted_first(*arguments: Any, **options: Any) -> None:
        raced.undo()
        if is_restored:
            lake.roll_back(first)
        else:
            lake.overwrite(few)
        write(*arguments, **options)

    with monkeypatch.context() as raced:
        raced.setattr(deltalake, "write_deltalake", reverted_first)
        with pytest.raises(RolledBack, match=r"version \d+ \((RESTORE|WRITE, overwriting)\)"):
            lake.load()
    if is_restored:
        lake.load()
        assert lake.places() == lake.expected


def test_a_restore_between_a_load_and_what_it_was_built_on_ends_the_next_one(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "delta")
    load_twice(lake)
    load = next(entry for entry in lake.delta().history() if delta.BUILT_ON in entry)
    before = int(load["version"]) - 1
    change_entry(lake, before, operation="RESTORE", operationParameters={"version": "0"})
    change_entry(lake, before + 1, **{delta.BUILT_ON: str(before - 1)})
    lake.delta().delete("queueOffset = 9")
    with pytest.raises(OffsetsUnknown, match=r"\(RESTORE\) came while a load was committed"):
        lake.load()


def test_a_restore_whose_history_is_expired_ends_the_load(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "delta")
    first = load_twice(lake)
    lake.roll_back(first)
    lake.delta().create_checkpoint()
    for path in (Path(lake.name) / "_delta_log").glob("*.json"):
        if int(path.stem) < lake.current:
            path.unlink()
    with pytest.raises(OffsetsUnknown, match=r"brought back by version \d+ \(RESTORE\), is expired"):
        lake.load()
    assert len(lake.rows()) == 30


def test_a_delta_table_with_day_partitions_is_loaded(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "delta")
    schema = table_schema(read_names(None, DEFAULT_ROWS), DEFAULT_ROWS)
    deltalake.DeltaTable.create(lake.name, schema.append(pa.field("day", pa.date32())), partition_by=["day"])
    for day in (1, 2):
        at = dt.datetime(2026, 1, day, 23, 59, 59, tzinfo=dt.UTC)
        lake.put("orders", b"a", b"b", store_timestamp_ms=int(at.timestamp() * 1000))
    lake.load()
    assert [row["day"] for row in lake.rows()] == [dt.date(2026, 1, 1)] * 2 + [dt.date(2026, 1, 2)] * 2
    assert lake.delta().metadata().partition_columns == ["day"]
    lake.fill(3)
    lake.load()
    assert lake.places() == lake.expected
    with pytest.raises(SchemaRefused, match="add it to --columns"):
        lake.load(columns=["topic", "queueId", "queueOffset", "body"])


def test_an_iceberg_table_with_day_partitions_is_loaded(tmp_path: Path) -> None:
    from pyiceberg.transforms import DayTransform

    lake = Lake(tmp_path, "iceberg")
    lake.make_partitioned(table_schema(read_names(None, DEFAULT_ROWS), DEFAULT_ROWS))
    with lake.iceberg().update_spec() as update:
        update.add_field("storeTimestamp", DayTransform(), "day")
    lake.fill(10)
    lake.load()
    assert lake.places() == lake.expected


def test_a_restored_delta_table_that_an_earlier_release_loaded_since_ends_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path, "delta")
    first = load_twice(lake)
    lake.roll_back(first)
    lake.fill(10)
    with monkeypatch.context() as earlier:
        earlier.setattr("spark_bridge.lake.delta.BUILT_ON", "else")
        earlier.setattr("spark_bridge.lake.delta.DeltaTable._source", lambda _self, table: (delta.Source(0), table))
        lake.load()
    assert len(lake.rows()) == 40, "it went on behind what was restored away"
    with pytest.raises(OffsetsUnknown, match="an earlier release loaded it after"):
        lake.load()
