"""Shared memory of a broker of another version: read where it can be, else named with both versions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.board.cursors import Board
from ipc import waiting
from ipc.counters import REGION_KIND, Counters
from ipc.errors import OtherVersion
from ipc.module_names import commit_of, version_here, with_commit
from ipc.region import HEADER_BYTES, MADE_BY_AT, MADE_BY_BYTES, HeaderWord, Region
from store.files.pointer import COUNTERS_FILE
from store.reading.extent import Said

NEW_SINCE = ("fenced_by_epoch", "front.0.sends", "given_up.writer")


def test_counters_that_an_earlier_version_lacks_read_as_nothing(tmp_path: Path) -> None:
    declared = [counter for counter in Board.every() if counter.label not in NEW_SINCE]
    assert len(declared) == len(Board.every()) - len(NEW_SINCE)
    counters = Counters.create(tmp_path / COUNTERS_FILE, len(declared))
    for counter in declared:
        counters.allocate(counter.label, kind=counter.kind, owner=counter.owner)
    waiting.publish(counters.cursor("max_physical_offset"), 77)
    for writable in (False, True):
        board = Board.attach(tmp_path, writable=writable)
        assert board.max_physical_offset.read() == 77
        absent = board.fenced_by_epoch, board.fronts[0].sends, board.given_up["writer"]
        assert [cursor.read() for cursor in absent] == [0, 0, 0]
        board.counters.close()
    counters.close()


@pytest.mark.parametrize("said", ["0.9.9+gfedcba987654", ""], ids=["a later one", "one that does not say it"])
def test_another_layout_is_named_with_both_versions(tmp_path: Path, said: str) -> None:
    path = tmp_path / COUNTERS_FILE
    Board.create(path).counters.close()
    region = Region.attach(path, kind=REGION_KIND, layout=1, writable=True)
    assert region.made_by == version_here()
    region.header[HeaderWord.LAYOUT] = 99
    text = np.frombuffer(said.encode().ljust(MADE_BY_BYTES, b"\0"), np.uint8)
    region.header.view(np.uint8)[MADE_BY_AT : MADE_BY_AT + MADE_BY_BYTES] = text
    region.close()
    assert path.stat().st_size > HEADER_BYTES
    with pytest.raises(OtherVersion) as raised:
        Board.attach(tmp_path)
    assert raised.value.code == "OTHER_VERSION" and version_here() in str(raised.value)
    assert (said or "an earlier one") in str(raised.value) and "restart the broker" in str(raised.value)


def test_a_setting_that_the_broker_does_not_say_is_another_version(tmp_path: Path) -> None:
    settings = Said(tmp_path, "0.1.0", {"brokerName": "a"})
    assert settings["brokerName"] == "a" and settings.get("newKey", 1) == 1
    with pytest.raises(OtherVersion, match=r"runs version 0\.1\.0.*its setting newKey"):
        settings["newKey"]


def test_a_version_names_its_commit(tmp_path: Path) -> None:
    first, second = "0123456789abcdef" * 2 + "01234567", "f" * 40
    git = tmp_path / ".git"
    (git / "refs/heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert commit_of(tmp_path) == "", "there is no commit yet"
    (git / "packed-refs").write_text(f"# pack-refs\n{first} refs/heads/main\n")
    assert with_commit("1.0", commit_of(tmp_path)) == "1.0+g0123456789ab"
    (git / "refs/heads/main").write_text(f"{second}\n")
    assert with_commit("1.0", commit_of(tmp_path)) == "1.0+gffffffffffff"
    worktree = tmp_path / "tree"
    worktree.mkdir()
    (worktree / ".git").write_text(f"gitdir: {git}/worktrees/tree\n")
    (git / "worktrees/tree").mkdir(parents=True)
    (git / "worktrees/tree/HEAD").write_text("ref: refs/heads/main\n")
    (git / "worktrees/tree/commondir").write_text("../..\n")
    assert commit_of(worktree) == "f" * 12
    (worktree / ".git").write_bytes(b"\xff")
    assert commit_of(worktree) == commit_of(tmp_path / "nowhere") == ""
    assert with_commit("1.0+g1", "2") == "1.0+g1"
