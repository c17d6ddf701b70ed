"""README is short enough to be read, and its sections stand in their order."""

from __future__ import annotations

from tests.harness.page_blocks import ROOT

README = ROOT / "README.md"
BYTES_MAX, CHARACTERS_MAX = 9_000, 120


def test_the_readme_can_be_read_at_one_sitting() -> None:
    assert len(README.read_bytes()) <= BYTES_MAX
    assert not [line for line in README.read_text().splitlines() if len(line) > CHARACTERS_MAX]


def test_the_sections_of_the_readme_have_their_order() -> None:
    headings = [line[3:] for line in README.read_text().splitlines() if line.startswith("## ")]
    assert headings == [
        "Who it is for", "Why shouldn't I use it?", "Figures", "Install", "First success", "Python", "Spark",
        "Attach to an existing RocketMQ", "What an acknowledgement survives", "From a checkout", "Links",
    ]  # fmt: skip
