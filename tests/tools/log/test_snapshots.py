"""`slipstream snapshot`, as it is typed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ipc.clock import wall_ms
from store.upkeep import snapshots
from tests.harness.command_line import run
from tests.harness.dispatched import small_store
from tests.harness.logs import SmallLog
from tests.tools.test_output import as_said, files_beside
from tools.common.exit_codes import ExitCode


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    return small_store(tmp_path / "store")


def said(*arguments: object) -> dict[str, Any]:
    """What it says as JSON, which is as the schema says."""
    ran = run("snapshot", "--json", *arguments)
    assert ran.exit_code == 0, ran.output
    fields = json.loads(ran.stdout)
    as_said(fields, files_beside())
    return dict(fields)


def test_a_snapshot_is_made_shown_and_dropped(log: SmallLog) -> None:
    assert run("snapshot", "--list", log.root).stdout.startswith("no snapshots")
    made = run("snapshot", "nightly", log.root, "--keep", "2h")
    assert made.stdout.startswith(f"snapshot nightly: 6 queues, the log from 0 to {log.end:,}; kept until 20")
    kept = snapshots.read(log.root, "nightly")
    assert kept.expires_ms - kept.created_ms == 2 * 3_600_000
    (other,) = said("other", log.root)["snapshots"]
    assert other["offsets"]["topic0"]["0"] == kept.offsets["topic0"][0]
    assert [(one["name"], one["state"]) for one in said("--list", log.root)["snapshots"]] == [
        ("nightly", "kept"),
        ("other", "kept"),
    ]
    assert "nightly" in run("snapshot", "--list", log.root).stdout
    assert "leased from 0" in run("log", "map", log.root).stdout
    assert said("--drop", "nightly", log.root)["snapshots"] == []
    assert run("snapshot", "--drop", "other", log.root).stdout == "snapshot other: dropped\n"
    assert run("snapshot", "--drop", "other", log.root).exit_code == ExitCode.USAGE
    assert "leased" not in run("log", "map", log.root).stdout


def test_the_list_shows_the_state_of_each_snapshot(log: SmallLog, tmp_path: Path) -> None:
    for name in ("old", "odd", "good"):
        assert run("snapshot", name, log.root).exit_code == 0
    snapshots.write(log.root, replace(snapshots.read(log.root, "old"), expires_ms=wall_ms() - 1))
    snapshots.path_of(log.root, "odd").write_bytes(b"?")
    states = {one["name"]: one["state"] for one in said("--list", log.root)["snapshots"]}
    assert states == {"old": "expired", "odd": "damaged", "good": "kept"}
    copy = tmp_path / "copy"
    shutil.copytree(log.root, copy)
    shown = run("snapshot", "--list", copy).stdout
    assert shown.count("foreign") == 2 and "(a copy?)" in shown and "not a snapshot" in shown


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--list"], ExitCode.USAGE, "USAGE"),
        (["nightly"], ExitCode.USAGE, "USAGE: give only STORE with --list, otherwise NAME and STORE"),
        (["--list", "--drop", "x"], ExitCode.USAGE, "USAGE"),
        (["../x", "STORE"], ExitCode.USAGE, "SNAPSHOT_REFUSED: snapshot '../x': not a name for a snapshot"),
        (["x", "STORE", "--keep", "soon"], ExitCode.USAGE, "USAGE"),
        (["x", "STORE", "--keep", "5w"], ExitCode.USAGE, "SNAPSHOT_REFUSED"),
        (["x", "NOWHERE"], ExitCode.USAGE, "NOT_A_STORE"),
        (["--list", "NOWHERE"], ExitCode.USAGE, "NOT_A_STORE"),
        (["--drop", "x", "NOWHERE"], ExitCode.USAGE, "NOT_A_STORE"),
        (["--drop", "x", "STORE"], ExitCode.USAGE, "SNAPSHOT_UNKNOWN"),
    ],
)
def test_a_wrong_snapshot_command_is_refused_in_one_line(
    log: SmallLog, tmp_path: Path, words: list[str], code: ExitCode, told: str
) -> None:
    places = {"STORE": str(log.root), "NOWHERE": str(tmp_path / "nowhere")}
    ran = run("snapshot", *(places.get(word, word) for word in words))
    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (code, "", 1)
    assert told in ran.stderr
