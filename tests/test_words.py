"""Documents, docstrings and texts of the program use plain words: tests/words.txt has those to avoid."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
WORDS = Path(__file__).with_name("words.txt")
PACKAGES = ("ipc", "store", "engine", "spark_bridge", "tools")
SOURCES = [*(path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))), *ROOT.glob("*.py")]
LEDGER = re.compile(r"(?:Written|Made) by\s+`make ")  # a program wrote its figures
# Docstrings that are riddles: "Of one front." "As it is sent." "Once."
NO_SUBJECT, NO_SUBJECT_MAX = re.compile(r"(Of|As|By)\b"), 4
FEW_WORDS, FEW_WORDS_MAX = 4, 18
CHANGELOG_ENTRY_MAX = 120


class Rule(NamedTuple):
    """Words to avoid, how many may be left, and what to write instead."""

    words: str
    left_max: int
    better: str

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.words.replace(" ", r"\s+"))


def rules() -> Iterator[Rule]:
    for line in WORDS.read_text().splitlines():
        if line and not line.startswith("#"):
            words, left_max, better = line.rsplit(" | ", 2)
            yield Rule(words.strip(), int(left_max), better.strip())


RULES = list(rules())


def documents() -> list[Path]:
    """All Markdown files that people write."""
    found = [*ROOT.glob("*.md"), *(path for part in ("docs", *PACKAGES) for path in (ROOT / part).rglob("*.md"))]
    return [path for path in sorted(found) if not LEDGER.search(path.read_text())]


@cache
def prose() -> dict[str, str]:
    """What people read, by file."""
    return {str(path.relative_to(ROOT)): path.read_text() for path in [*documents(), *SOURCES]}


@pytest.mark.parametrize("rule", RULES, ids=[rule.words for rule in RULES])
def test_words_that_readers_stumble_over_get_fewer(rule: Rule) -> None:
    found = [
        f"{name}: {' '.join(match[0].split())}"
        for name, text in prose().items()
        for match in rule.pattern.finditer(text)
    ]
    assert len(found) <= rule.left_max, f"{len(found)} are too many; write instead: {rule.better}\n" + "\n".join(found)


def test_the_words_are_found() -> None:
    assert rules_for("the problem is\n    told") and rules_for("Whoever asks") and rules_for("the address is none")
    assert not rules_for("if the address is absent")


def rules_for(text: str) -> list[str]:
    return [rule.words for rule in RULES if rule.pattern.search(text)]


@cache
def docstrings() -> list[tuple[str, str]]:
    """(file and line, text) of every docstring."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return [
        (f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", text)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, kinds) and (text := ast.get_docstring(node))
    ]


def test_a_docstring_begins_with_a_verb_or_a_noun() -> None:
    found = [f"{where}: {text}" for where, text in docstrings() if NO_SUBJECT.match(text)]
    assert len(found) <= NO_SUBJECT_MAX, "\n".join(found)


def test_a_docstring_says_more_than_a_name() -> None:
    found = [f"{where}: {text}" for where, text in docstrings() if len(text.split()) <= FEW_WORDS]
    assert len(found) <= FEW_WORDS_MAX, "\n".join(found)


def test_an_entry_of_the_changelog_is_one_short_line() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert not [line for line in lines if line.startswith("- ") and len(line) > CHANGELOG_ENTRY_MAX]
    assert not [line for line in lines if line.startswith(" ")], "an entry is one line"
