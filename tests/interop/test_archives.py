"""Archives of classes make RocketMQ's processes start sooner, and are never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import jars, rocketmq
from tests.interop.needs import need


@pytest.mark.interop
def test_a_process_starts_without_an_archive_that_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need()
    archive = tmp_path / "classes.jsa"
    archive.write_bytes(b"no archive")
    monkeypatch.setattr(jars.Jars, "archive", archive)
    names = rocketmq.NameServer(tmp_path / "names")
    assert f"-XX:SharedArchiveFile={archive}" in names.command()
    with names:  # it starts
        pass
