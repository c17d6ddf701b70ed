"""RocketMQ's own clients at our broker see what they see at a real one; `make interop` runs every pairing."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from tests.interop import needs
from tests.interop.clients import (
    REAL_OF,
    SCENES,
    Cell,
    CellResult,
    cells,
    differences,
    other_forms,
    recorded,
    run_cell,
    with_lite_pulls,
)
from tests.interop.clients_ledger import section

CHOSEN = (Cell("4.9.7", "ours 4.9"), Cell("5.3.3", "ours 5"))  # the others are `make interop`'s


@pytest.mark.interop
@pytest.mark.peer
@pytest.mark.parametrize("cell", CHOSEN, ids=lambda cell: cell.name)
def test_a_client_sees_of_our_broker_what_it_sees_of_a_real_one(cell: Cell, tmp_path: Path) -> None:
    needs.need([cell.client])
    real, ours = recorded(Cell(cell.client, REAL_OF[cell.kind])), run_cell(tmp_path, cell)
    assert {scene: text for scene, text in differences(real.seen, ours.seen).items() if text} == {}
    assert other_forms(real, ours) == {}


@pytest.mark.interop
@pytest.mark.peer
def test_lite_pulls_of_a_5x_client_work_at_compat_4_9(tmp_path: Path) -> None:
    cell = Cell("5.3.3", "ours 4.9")
    needs.need([cell.client])
    real = with_lite_pulls(cell, recorded(Cell(cell.client, "4.9.7")))
    ours = run_cell(tmp_path, cell, ("lite", "assigned"))
    wrong = differences(real.seen, ours.seen)
    assert (wrong["lite"], wrong["assigned"]) == ("", "")
    assert other_forms(real, ours) == {}


def test_the_recorded_conversations_of_real_brokers_are_complete() -> None:
    for cell in cells():
        if cell.kind not in REAL_OF:
            real = recorded(cell)
            assert set(real.seen) == set(SCENES)
            assert not [line for lines in real.seen.values() for line in lines if "failed" in line]
            assert {11, 12, 14, 29, 30, 31, 34, 35, 36, 38, 41, 42, 310, 320, 325} <= set(real.forms)


def test_a_line_or_a_field_that_is_not_the_same_is_seen() -> None:
    real = recorded(Cell("4.9.7", "4.9.7"))
    assert not any(differences(real.seen, real.seen).values()) and not other_forms(real, real)
    for change in ("field", "missing", "more", "scene"):
        seen = copy.deepcopy(real.seen)
        match change:
            case "field":
                seen["sync"][0]["status"] = "FLUSH_DISK_TIMEOUT"
            case "missing":
                seen["sync"].pop()
            case "more":
                seen["sync"].append(seen["sync"][0])
            case _:
                del seen["sync"]
        assert [scene for scene, text in differences(real.seen, seen).items() if text] == ["sync"], change
    ours = CellResult(real.seen, {**real.forms, 11: [*real.forms[11], real.forms[11][0].replace("JAVA", "PYTHON")]})
    assert list(other_forms(real, ours)) == [11]
    results = dict.fromkeys(cells(), real)
    results[Cell("5.3.3", "ours 5")] = ours
    text, wrong = section(results)
    assert wrong > 0 and "not a real one's: answer to 11" in text
