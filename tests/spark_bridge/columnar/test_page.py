"""The blocks of the page about side files run on a store that they are true of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.settings.config import from_mapping
from store.upkeep import side_files
from tests.harness.logs import SmallLog
from tests.harness.page_blocks import Session, commands_in_path


def taken(text: str) -> None:
    """A properties file that a broker takes, and that asks for the role."""
    assert from_mapping(dict(line.split("=", 1) for line in text.splitlines())).columnar_sidecar


def test_every_block_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SmallLog(tmp_path / "store", segment_bytes=1 << 16)
    orders = 0
    while log.end < 3 << 16:
        log.append("orders", b"x" * 100, properties={"TAGS": "new"}, queue_id=orders % 4)
        orders += 1
    with commands_in_path(monkeypatch, tmp_path), Session("columnar.md", tmp_path, {"STORE": log.root}) as session:
        assert session.run({"properties": taken}) >= 5
        said = json.loads(session.printed().splitlines()[-1])
        names = session.names
    assert [one["state"] for one in said["segments"]] == ["built", "valid", "valid"]
    assert sorted(side_files.listed(log.root)) == [0, 1 << 16, 2 << 16]
    assert names["table"].num_rows == orders
    assert names["by_topic"].to_pylist()[0]["topic"] == "orders"
