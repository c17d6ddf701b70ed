"""The blocks of the page for pandas, polars and DuckDB run, and find what was sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.page_blocks import Session, commands_in_path
from tools.common.local_broker import free_port


def test_every_block_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = {"10911": free_port(), "8815": free_port()}
    with commands_in_path(monkeypatch, tmp_path), Session("arrow.md", tmp_path, ports) as session:
        assert session.run() >= 9
        names = session.names
    assert (names["table"].num_rows, names["views"].num_rows) == (1000, 1000)
    assert names["remote"].num_rows == 1000
    assert 0 < names["late"].num_rows < 1000
    assert names["by_queue"]["count"].sum() == 1000
    assert names["total"] == sum(number + 0.5 for number in range(1, 1001))
    assert [row[:2] for row in names["rows"]] == [("orders", 1000), ("returns", 200)]
