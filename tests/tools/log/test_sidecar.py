"""`slipstream log sidecar`, as it is typed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from store.upkeep import side_files
from tests.harness.children import exit_code_of
from tests.harness.command_line import run
from tests.harness.dispatched import small_store
from tests.harness.logs import SmallLog
from tests.tools.test_output import as_said, files_beside
from tools.common.exit_codes import ExitCode

NOBODY = 65534


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    return small_store(tmp_path / "store", messages=80)


def said(*arguments: object, ends_with: int = 0) -> list[dict[str, Any]]:
    """Its segments as JSON, which is as the schema says."""
    ran = run("log", "sidecar", "--json", *arguments)
    assert ran.exit_code == ends_with, ran.output
    fields = json.loads(ran.stdout)
    as_said(fields, files_beside())
    return list(fields["segments"])


def states(*arguments: object, ends_with: int = 0) -> list[str]:
    return [one["state"] for one in said(*arguments, ends_with=ends_with)]


def test_side_files_are_built_once_checked_and_dropped(log: SmallLog) -> None:
    assert states("--check", log.root) == ["missing", "missing"]
    assert states(log.root) == ["built", "built"]
    assert states(log.root) == ["valid", "valid"] == states("--check", log.root)
    assert run("log", "verify", log.root).exit_code == 0
    assert states("--drop", "--segment", 0, log.root) == ["dropped"]
    assert states(log.root) == ["built", "valid"]
    assert [one["segment"] for one in said("--drop", log.root)] == [f"{0:020d}", f"{4096:020d}"]
    assert not side_files.folder_of(log.root).exists() and said("--drop", log.root) == []
    table = run("log", "sidecar", "--segment", 4096, log.root).stdout.splitlines()
    assert table[0].split() == ["segment", "state", "rows", "bytes", "seconds"]
    assert table[1].split()[:2] == [f"{4096:020d}", "built"] and len(table) == 2


def test_the_check_reports_damaged_and_stale_side_files(log: SmallLog) -> None:
    said(log.root)
    data = side_files.data_path(log.root, 0)
    content = bytearray(data.read_bytes())
    content[60] ^= 1
    data.write_bytes(content)
    log.flip(log.records[-1].offset - log.records[-1].offset % 4096 - 4096 + 40)
    first, second = said("--check", log.root, ends_with=ExitCode.FOUND)
    assert first["state"] == "damaged" and "differ from those that were written" in first["reason"]
    assert second["state"] == "stale" and "differs from the one it was made from" in second["reason"]
    told = run("log", "sidecar", "--check", log.root)
    assert told.exit_code == ExitCode.FOUND and first["reason"] in told.stdout


def test_a_log_that_was_cut_back_and_goes_on_otherwise(log: SmallLog) -> None:
    said(log.root)
    at = [record for record in log.records if record.offset < 4096][-3].offset
    assert run("log", "repair", "--cut", at, log.root).exit_code == 0
    assert said(log.root) == []  # no segment is sealed
    log.end, log.records = at, [record for record in log.records if record.offset < at]
    while log.end <= 4096:
        log.append("topic0", b"another")
    assert states("--check", log.root, ends_with=ExitCode.FOUND) == ["stale"]
    assert states(log.root) == ["built"] and states("--check", log.root) == ["valid"]


def test_wrong_arguments_are_named(log: SmallLog, tmp_path: Path) -> None:
    for arguments, what in (
        (("--check", "--drop", log.root), "--check and --drop cannot be combined"),
        (("--segment", "5", log.root), "no sealed segment of this log begins there"),
        ((tmp_path / "nowhere",), "NOT_A_STORE"),
    ):
        ran = run("log", "sidecar", *arguments)
        assert ran.exit_code == ExitCode.USAGE and what in ran.stderr, ran.stderr


def test_somebody_else_at_work_is_reported(log: SmallLog) -> None:
    side_files.make_folder(log.root)
    fd = side_files.hold(log.root)
    for arguments in ((), ("--drop",)):
        ran = run("log", "sidecar", *arguments, log.root)
        assert ran.exit_code == ExitCode.STORE and ran.stderr.startswith("slipstream: SIDE_FILES_BUSY: ")
    os.close(fd)
    assert states(log.root) == ["built", "built"]


def test_a_copy_of_a_store_has_its_side_files(log: SmallLog, tmp_path: Path) -> None:
    said(log.root)
    shutil.copytree(log.root, tmp_path / "copy")
    assert states(tmp_path / "copy") == ["valid", "valid"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_refused_and_changes_nothing(log: SmallLog, tmp_path: Path) -> None:
    said(log.root)
    child = os.fork()
    if not child:
        code = 99
        try:
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            code = run("log", "sidecar", log.root).exit_code
        finally:
            os._exit(code)
    assert exit_code_of(child) in (ExitCode.STORE, ExitCode.USAGE)
    assert states("--check", log.root) == ["valid", "valid"]
    os.chown(log.root, NOBODY, NOBODY)
    said("--drop", log.root)
    said(log.root)
    folder = side_files.folder_of(log.root)
    assert {path.stat().st_uid for path in (folder, *folder.iterdir())} == {NOBODY}
