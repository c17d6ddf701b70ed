"""The part of the interop matrix that every change has to pass; `make interop` runs all of it (docs/interop.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import needs
from tests.interop.loads import OK
from tests.interop.matrix import Run, cell_named, cells

# Each pairing of ours and theirs once, both name servers, both modes; the whole has eight times as many.
CHOSEN = (
    "5.3.3-ours_5-ours-sync", "ours_5-5.3.3-real-sync", "ours_4.9-4.9.7-ours-async", "4.9.7-ours_4.9-real-sync",
)  # fmt: skip


@pytest.mark.interop
@pytest.mark.parametrize("name", CHOSEN)
def test_a_pair_under_load_with_each_side_killed_ends_equal(name: str, tmp_path: Path) -> None:
    cell = cell_named(name)
    needs.need(cell.versions_needed)
    run = Run(cell, tmp_path)
    result = run.run()
    assert result.answered > 0 and result.segments > 3
    would_see_what_is_wrong(run)


def would_see_what_is_wrong(run: Run) -> None:
    """The comparison is no comparison unless it sees a message that is missing, and a bit that is not the same."""
    run.outcomes.append(OK)
    with pytest.raises(AssertionError, match="0 times"):
        run.account()
    run.outcomes.pop()
    segment = run.slave.store / "commitlog" / f"{0:020d}"
    changed = bytearray(segment.read_bytes())
    changed[1000] ^= 1
    segment.write_bytes(changed)
    with pytest.raises(AssertionError, match="differ in the segments \\[0\\]"):
        run.compare()


def test_the_matrix_is_whole() -> None:
    names = [cell.name for cell in cells()]
    assert len(set(names)) == len(names) == 40
    pairs = {(cell.master[:4], cell.slave[:4], cell.names, cell.mode) for cell in cells()}
    assert len(pairs) == 9 * 2 * 2


def test_what_is_missing_fails_in_ci_and_is_skipped_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no java"):
        needs.absent("no java on the PATH")
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match="no java"):
        needs.absent("no java on the PATH")
