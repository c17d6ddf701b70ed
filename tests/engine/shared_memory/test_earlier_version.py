"""Shared memory of a broker of another layout is named with both versions, which differ by the commit."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from engine.shared_memory.cursors import BrokerCounters
from ipc.counters import REGION_KIND
from ipc.errors import OtherVersion
from ipc.module_names import commit_of, version_here, version_of
from ipc.region import HEADER_BYTES, MADE_BY_AT, MADE_BY_BYTES, HeaderWord, Region
from store.files.pointer import COUNTERS_FILE
from store.reading.extent import Said


@pytest.mark.parametrize("said", ["0.9.9+gfedcba987654", ""], ids=["a later one", "one that does not say it"])
def test_another_layout_is_named_with_both_versions(tmp_path: Path, said: str) -> None:
    path = tmp_path / COUNTERS_FILE
    BrokerCounters.create(path).region.close()
    region = Region.attach(path, kind=REGION_KIND, layout=1, writable=True)
    assert region.made_by == version_here()
    region.header[HeaderWord.LAYOUT] = 99
    text = np.frombuffer(said.encode().ljust(MADE_BY_BYTES, b"\0"), np.uint8)
    region.header.view(np.uint8)[MADE_BY_AT : MADE_BY_AT + MADE_BY_BYTES] = text
    region.close()
    assert path.stat().st_size > HEADER_BYTES
    with pytest.raises(OtherVersion) as raised:
        BrokerCounters.attach(tmp_path)
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
    assert version_of("1.0", tmp_path) == "1.0+g0123456789ab"
    (git / "refs/heads/main").write_text(f"{second}\n")
    assert version_of("1.0", tmp_path) == "1.0+gffffffffffff"
    worktree = tmp_path / "tree"
    (worktree / "ipc").mkdir(parents=True)
    (worktree / ".git").write_text(f"gitdir: {git}/worktrees/tree\n")
    (git / "worktrees/tree").mkdir(parents=True)
    (git / "worktrees/tree/HEAD").write_text("ref: refs/heads/main\n")
    (git / "worktrees/tree/commondir").write_text("../..\n")
    assert commit_of(worktree) == "f" * 12
    (worktree / ".git").write_bytes(b"\xff")
    assert commit_of(worktree) == commit_of(tmp_path / "nowhere") == ""
    assert version_of("1.0+g1", worktree) == "1.0+g1"
    without = set()
    for name, content in (("a", ""), ("a", "1"), ("b", "1")):
        (worktree / "ipc" / f"{name}.py").write_text(content)
        without.add(version_of("1.0", worktree))
    assert len(without) == 3 and all(re.fullmatch(r"1\.0\+src[0-9a-f]{12}", one) for one in without)
