"""The doctor names shared memory that killed brokers left, with the command for what nobody will come for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.shared_memory.region_directory import leftovers
from ipc.clock import monotonic_ms
from tests.engine.shared_memory.region_directory.test_leftovers import Made
from tests.harness.command_line import run
from tools.doctor.memory import NAMED_MAX


def rows_of(root: Path) -> list[dict[str, Any]]:
    ran = run("doctor", root, "--json")
    assert ran.exit_code == 1, ran.output
    rows: list[dict[str, Any]] = json.loads(ran.stdout)["rows"]
    assert (rows[0]["check"], rows[0]["reason"]) == ("broker", "STOPPED")
    return rows[1:]


def test_shared_memory_of_killed_brokers_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, gone = Made(tmp_path), Made(tmp_path, "gone")
    made.die()
    gone.die()
    shutil.rmtree(gone.root)
    (row,) = rows_of(made.root)
    assert (row["check"], row["level"], row["next"]) == ("shared memory", "ok", "")
    assert str(made.regions) in row["what"] and "its next start takes them" in row["what"]
    monkeypatch.setattr(leftovers, "monotonic_ms", lambda: monotonic_ms() + leftovers.SILENT_MS + 1)
    (row,) = rows_of(made.root)
    assert str(gone.root) in row["what"] and row["next"].startswith(f"`rm -r {gone.regions}`")
    assert str(made.regions) not in row["next"]
    shutil.rmtree(made.regions)
    shutil.rmtree(gone.regions)
    assert rows_of(made.root) == []


def test_some_of_many_leftovers_are_named_and_all_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, gone = Made(tmp_path), [Made(tmp_path, f"gone{number}") for number in range(NAMED_MAX + 2)]
    for one in (made, *gone):
        one.die()
    for one in gone:
        shutil.rmtree(one.root)
    monkeypatch.setattr(leftovers, "monotonic_ms", lambda: monotonic_ms() + leftovers.SILENT_MS + 1)
    (row,) = rows_of(made.root)
    assert row["what"].endswith(" and 2 more") and row["next"].endswith("; then run this again")
    assert sum(str(one.regions) in row["next"] for one in gone) == NAMED_MAX
    for one in (made, *gone):
        shutil.rmtree(one.regions)
