"""Tables of a lake that others change while they are loaded: other loaders, engines, and who drops them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from spark_bridge.lake.errors import Overtaken, RolledBack, TableGone
from tests.spark_bridge.lakes import FORMATS, Lake


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path, request.param)


def test_one_of_two_loaders_ends_and_no_row_is_there_twice(lake: Lake) -> None:
    lake.fill(30)
    with lake.tables(rows_max=10) as first, lake.tables(rows_max=10) as second:
        first.open()
        second.open()
        assert next(first.commits(is_due=True)).rows == 10
        with pytest.raises(Overtaken, match="another process loads this table"):
            next(second.commits(is_due=True))
        assert sum(one.rows for one in first.commits(is_due=True)) == 20
    assert lake.places() == lake.expected


def test_a_commit_between_another_loaders_look_and_its_commit_is_seen(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.fill(30)
    with lake.tables(rows_max=10) as first, lake.tables(rows_max=10) as second:
        first.open()
        second.open()
        table: Any = next(iter(second._loads.values())).table
        look = table._name_queues if lake.format == "delta" else table._progress
        name = "_name_queues" if lake.format == "delta" else "_progress"

        def commits_first(*arguments: object) -> object:
            monkeypatch.delattr(table, name)
            answer = look(*arguments)
            assert next(first.commits(is_due=True)).rows == 10
            return answer

        monkeypatch.setattr(table, name, commits_first, raising=False)
        with pytest.raises(Overtaken):
            next(second.commits(is_due=True))
    assert len(lake.rows()) == len(set(lake.places())) == 10


def test_what_an_engine_does_to_the_table_meanwhile_is_no_other_loader(lake: Lake) -> None:
    lake.fill(20)
    with lake.tables(rows_max=10) as tables:
        tables.open()
        commits = tables.commits(is_due=True)
        assert next(commits).rows == 10
        if lake.format == "iceberg":
            lake.iceberg().delete("queueOffset == 0")
        else:
            lake.delta().delete("queueOffset = 0")
            lake.delta().optimize.compact()
        assert next(commits).rows == 10
    assert lake.places() == [place for place in lake.expected if place[2]]


def drop(lake: Lake) -> None:
    if lake.format == "delta":
        shutil.rmtree(lake.name)
        return
    lake.iceberg().catalog.drop_table(lake.name)


def test_a_table_that_is_dropped_meanwhile_ends_the_load(lake: Lake) -> None:
    lake.fill(20)
    with lake.tables(rows_max=5) as tables:
        tables.open()
        commits = tables.commits(is_due=True)
        next(commits)
        drop(lake)
        with pytest.raises(TableGone, match="it was dropped during the load"):
            next(commits)
    assert lake.format == "iceberg" or not Path(lake.name).exists(), "no half of a table is left behind"
    with lake.tables(rows_max=5) as tables:
        tables.open()
        commits = tables.commits(is_due=True)
        next(commits)
        drop(lake)
        lake.load(max_rows=5)
        with pytest.raises(TableGone, match="dropped and created anew"):
            next(commits)
    assert lake.places() == lake.expected


def test_a_table_that_is_rolled_back_meanwhile_ends_the_load_and_the_next_one_has_its_messages_again(
    lake: Lake,
) -> None:
    lake.fill(20)
    with lake.tables(rows_max=5) as tables:
        tables.open()
        commits = tables.commits(is_due=True)
        next(commits)
        back = lake.current
        next(commits)
        lake.roll_back(back)
        with pytest.raises(RolledBack, match="start again"):
            next(commits)
    assert len(lake.rows()) == 5
    lake.load()
    assert lake.places() == lake.expected
