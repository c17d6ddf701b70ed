"""The page on backups and upgrades: its steps, one after the other, on a real pair."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.reading.extent import running
from tests.harness.command_line import run
from tests.harness.page_blocks import Session, commands_in_path
from tools.common.local_broker import free_port


def test_a_pair_is_backed_up_restored_and_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    master = free_port()
    instead = {
        "slipstream produce": "slipstream produce --timeout 120", "10911": master, "10912": master + 1,
        "10921": free_port(), "mappedFileSizeCommitLog=16777216": (
            "mappedFileSizeCommitLog=16777216\nslaveTimeout=60000\nhaHousekeepingInterval=120000\n"
            "diskSpaceWarningLevelRatio=100\ndiskSpaceCleanForciblyRatio=100"
        ),
    }  # fmt: skip
    with commands_in_path(monkeypatch, tmp_path), Session("run-it.md", tmp_path, instead) as session:
        assert session.run() == 5
    for side in ("a", "b"):
        store = tmp_path / "pair" / side / "store"
        assert running(store) is None
        listed = run("log", "stat", store, "--json")
        assert listed.exit_code == 0 and "numbers" in listed.stdout
    assert run("log", "diff", tmp_path / "pair/a/store", tmp_path / "pair/b/store").exit_code == 0
