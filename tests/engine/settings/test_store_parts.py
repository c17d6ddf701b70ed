"""The index by a broker's settings: where it is, how its files are laid out, and none where it is not wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.settings.config import from_mapping
from engine.settings.store_parts import index_of
from store.index.index_file import DEFAULT_GEOMETRY, Geometry


def settings(root: Path, **more: object) -> dict[str, object]:
    return {"storePathRootDir": root, **more}


def test_the_defaults_are_rocketmqs(tmp_path: Path) -> None:
    index = index_of(from_mapping(settings(tmp_path)))
    assert index is not None
    assert (index.directory, index.geometry, index.safe) == (tmp_path / "index", DEFAULT_GEOMETRY, False)
    assert index.geometry.file_bytes == 420_000_040


def test_every_key_is_taken(tmp_path: Path) -> None:
    index = index_of(from_mapping(settings(tmp_path, maxHashSlotNum=7, maxIndexNum=9, messageIndexSafe="true")))
    assert index is not None
    assert (index.geometry, index.safe) == (Geometry(7, 9), True)
    assert index_of(from_mapping(settings(tmp_path, messageIndexEnable="false"))) is None


@pytest.mark.parametrize("key", ["maxHashSlotNum", "maxIndexNum"])
def test_sizes_that_hold_no_entry_are_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(Exception, match=key):
        from_mapping(settings(tmp_path, **{key: 0}))
