"""What is left in a folder is seen once, by who looks next; caches, hidden files and what git ignores are not."""

from __future__ import annotations

from pathlib import Path

from tests.harness.leftovers import Folder


def test_what_a_test_leaves_is_seen_once(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("__pycache__/\n*.egg-info/\n")
    (tmp_path / "store").mkdir()
    folder = Folder(tmp_path)
    for name in ("__pycache__", "x.egg-info", ".README.md.swp", "slipstream.leases"):
        (tmp_path / name).mkdir()
    assert folder.news() == {"slipstream.leases"}
    assert not folder.news()
