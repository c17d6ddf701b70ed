"""docs/replication.md: each cell is a word of its legend, and tests that exist show it; its shapes are those tried."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from engine.protocol.ha.wire import CloseReason
from engine.settings.keys import KEYS
from tests.tools.replica.test_eight_shapes import SHAPES

ROOT = Path(__file__).resolve().parents[3]
LEVELS, EVENTS_MIN = 8, 7
CELL = re.compile(r"(kept|slave|risk|lost) \[([a-z])\]|(not run)")
OURS_KEYS = re.compile(r"`((?:ha|maxHa)[A-Z]\w+|syncFromLastFile|inSyncReplicas|flushDiskType)(?:=\w+)?`")


@cache
def page() -> str:
    return (ROOT / "docs" / "replication.md").read_text()


def table(head: str) -> list[list[str]]:
    """The rows below the one that begins so."""
    lines = page().split(f"\n| {head}", 1)[1].split("\n")[2:]
    rows = lines[: next(number for number, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_each_cell_has_a_word_of_the_legend_and_names_what_shows_it() -> None:
    rows, shown = table("the message was acknowledged"), {row[0] for row in table("| shown by")}
    assert len(rows) >= EVENTS_MIN
    used = set()
    for event, *cells in rows:
        assert len(cells) == LEVELS, event
        for level, cell in enumerate(cells):
            match = CELL.fullmatch(cell)
            assert match, (event, cell)
            assert not match[3] or level in (1, 3, 5), f"{event}: ours is tried at every level"
            used |= {match[2]} - {None}
    assert used == shown


def test_tests_that_the_replication_page_names_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page())
    assert len(named) > len(table("| shown by"))
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not (ROOT / file).exists() or (test and f"\ndef {test}(" not in (ROOT / file).read_text())
    ]
    assert not missing


def test_the_shapes_of_the_replication_page_are_those_that_are_tried() -> None:
    rows = {row[0]: row[1:3] for row in table("shape |")}
    assert rows == {
        name: ["-" if shape.reason is CloseReason.NONE else shape.reason.name, shape.state]
        for name, shape in SHAPES.items()
    }


def test_keys_and_pages_that_the_replication_page_names_exist() -> None:
    keys = {match[1] for match in OURS_KEYS.finditer(page())}
    assert keys and not keys - {key.name for key in KEYS}
    pages = re.findall(r"\]\(([\w-]+\.md)", page())
    assert pages and not [name for name in pages if not (ROOT / "docs" / name).exists()]
