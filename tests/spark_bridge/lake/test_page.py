"""The blocks of the page on tables of a lake run, and the tables have what was sent."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.harness.page_blocks import Session, commands_in_path
from tools.common.local_broker import free_port


def test_every_block_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with commands_in_path(monkeypatch, tmp_path), Session("lake.md", tmp_path, {"10911": free_port()}) as session:
        assert session.run() == 12
        names = session.names
        names["catalog"].close()
    assert (names["in_iceberg"].num_rows, names["in_delta"].height) == (1000, 1000)
    assert pl.read_delta(str(tmp_path / "lake" / "delta" / "orders")).height == 1500
    assert names["priced"].height == 1501
    assert names["priced"]["price"].sum() == sum(number + 0.5 for number in range(1, 1501)) + 2
    assert names["priced"]["note"].drop_nulls().to_list() == ["late"]
    assert sum(one.rows for one in names["commits"]) == 1511
