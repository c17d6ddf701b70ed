"""A first index file that a broker begins while it is looked at: its first entries tell a moment later what it is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from store.index.geometry import geometry_of
from store.index.index_file import Geometry
from store.index.service import IndexService
from store.recovery.dispatch import Dispatcher
from store.verify import index as verify_index
from store.verify.index import IndexCheck
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog

KEYS = 40


@pytest.mark.parametrize("live", [True, False])
def test_a_file_that_tells_itself_a_moment_later_is_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    log = SmallLog(tmp_path / "store")
    for number in range(KEYS):
        log.append(properties={"KEYS": f"k{number}"})
    service = IndexService(log.root / "index", 50, 300)
    one = Dispatcher(log.files, log.root / "consumequeue", QUEUE_FILE_BYTES, index=service)
    one.dispatch(0, log.end)
    one.close()
    tells, asked = geometry_of, []

    def at_the_third_look(paths: Iterable[Path]) -> Geometry | None:
        asked.append(paths)
        return tells(paths) if len(asked) > 2 else None

    monkeypatch.setattr(verify_index, "geometry_of", at_the_third_look)
    check = IndexCheck(log.root / "index", log.files, [0], log.end, live=live, aborted=False, on_progress=lambda: None)
    codes = [finding.code for finding in check.findings()]
    assert ("INDEX_FILE" in codes, check.entries) == ((False, KEYS) if live else (True, 0))
