"""`make reads` in short: few cases of each part, and that a reader that is wrong is noticed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from spark_bridge.options import conditions
from spark_bridge.options.ranges import NUMBER_MAX, compared
from spark_bridge.records import row_filter
from tests.reads import damaged, pushed, scanned
from tests.reads.__main__ import Section, write
from tests.reads.damaged import Piece, Share, cut_cases, flip_cases, pieces_of, unpacked_segments
from tests.reads.made_stores import KINDS, Made, made_store
from tests.reads.scanned import Tally
from tests.spark_bridge.records.numpy_scan import record_starts

FLIPS, CUT_EVERY, CONDITIONS = 1000, 64, 60


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return unpacked_segments(tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def pieces(segments: list[Path]) -> list[Piece]:
    return pieces_of(segments)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Made]:
    directory = tmp_path_factory.mktemp("stores")
    return [made_store(directory / f"store-{seed}", seed) for seed in range(len(KINDS))]


def test_both_lines_are_in_the_pieces(pieces: list[Piece]) -> None:
    assert {piece.name.split("/")[0] for piece in pieces} == {"rocketmq-4.9.7", "rocketmq-5.3.3"}
    assert sum(len(piece.starts) for piece in pieces) > 2000


def test_of_changed_bits_both_readers_say_the_same(pieces: list[Piece]) -> None:
    share = flip_cases(pieces, 0, FLIPS)
    assert not share.differences
    assert share.cases == FLIPS and FLIPS // 3 < share.errors < 2 * FLIPS // 3
    assert share.plain > 20 and share.permissive == FLIPS // damaged.PERMISSIVE_EVERY and share.asked > 100


def test_of_cut_tails_both_readers_say_the_same(segments: list[Path]) -> None:
    share = Share()
    for path in segments:
        share.add(cut_cases(path, 1024, CUT_EVERY))
    assert not share.differences
    assert share.cases > 300 and share.cases // 3 < share.errors < share.cases


def test_a_reader_that_takes_a_damaged_record_is_noticed(pieces: list[Piece], monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(*arguments: object) -> Iterator[np.ndarray]:
        for starts in record_starts(*arguments):
            yield starts[starts != pieces[0].starts[1]]

    monkeypatch.setattr(damaged, "record_starts", blind)
    assert flip_cases(pieces[:1], 0, 20).differences


def kept(check: object, stores: list[Made]) -> Tally:
    tally = Tally()
    for number in range(CONDITIONS):
        tally.add(check(stores[number % len(stores)], number))  # type: ignore[operator]
    return tally


def test_a_scan_keeps_the_rows_that_a_plain_filter_keeps(stores: list[Made]) -> None:
    tally = kept(scanned.check, stores)
    assert not tally.differences and tally.conditions == CONDITIONS
    assert tally.part > CONDITIONS // 4


def test_what_is_taken_of_a_condition_of_spark_leaves_out_no_row_that_it_keeps(stores: list[Made]) -> None:
    tally = kept(pushed.check, stores)
    assert not tally.differences and tally.part > CONDITIONS // 5
    assert tally.kept < tally.read < 0.9 * tally.visible


def test_a_scan_that_compares_wrongly_is_noticed(stores: list[Made], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(row_filter._COMPARED, "<=", row_filter._COMPARED[">="])
    assert kept(scanned.check, stores).differences


def test_a_plan_that_takes_too_much_is_noticed(stores: list[Made], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "compared", lambda sign, constant, unit=1: compared(sign, constant + 1000, unit))
    assert kept(pushed.check, stores).differences


def test_generated_conditions_reach_the_ends_of_numbers(stores: list[Made]) -> None:
    chance = random.Random(1)
    asked = [scanned.generated(chance, stores[0]) for _ in range(400)]
    values = [value for one in asked for _, _, value in one.where if isinstance(value, int)]
    assert max(values) == NUMBER_MAX and min(values) == -NUMBER_MAX - 1


def test_a_part_that_runs_again_replaces_its_own_section(tmp_path: Path) -> None:
    ledger = tmp_path / "reads.md"
    write(ledger, {"pushed": Section("pushed", "| one |", wrong=[])})
    write(ledger, {"spark": Section("spark", "| two |", wrong=[])})
    write(ledger, {"pushed": Section("pushed", "| three |", wrong=[])})
    text = ledger.read_text()
    assert text.index("| three |") < text.index("## Conditions in a Spark session") < text.index("| two |")
    assert "| one |" not in text and text.count("\n## ") == 2 and text.startswith("# Reads")
