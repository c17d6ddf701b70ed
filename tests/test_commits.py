"""Commits say in an imperative title what they change, and in a body why."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TITLE_MAX = 72
LAST_LONG_TITLE, LAST_WITHOUT_BODY = "70c118ea", "1f42b94b"
REPORTS = re.compile(r"(Add|Fix|Chang|Remov|Updat|Mov|Renam|Us|Mak|Test)(s|ed|es|ing)\b")


def commits_since(first: str) -> list[tuple[str, str, str]]:
    """(hash, title, body) of each commit behind this one; skips where the history is not at hand."""
    form = "--format=%h%x00%s%x00%b%x01"
    git = ["git", "-C", str(ROOT), "log", "--no-merges", form, f"{first}..HEAD"]
    try:
        printed = subprocess.run(git, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a clone with its history")
    commits = [entry.strip("\n").split("\0") for entry in printed.split("\1") if entry.strip()]
    return [(name, title, body) for name, title, body in commits]


def test_a_title_is_short_and_imperative() -> None:
    wrong = [
        f"{name} {title}"
        for name, title, _body in commits_since(LAST_LONG_TITLE)
        if len(title) > TITLE_MAX or title.endswith(".") or not title[0].isupper() or REPORTS.match(title)
    ]
    assert not wrong, "\n".join(wrong)


def test_a_body_gives_the_reason() -> None:
    wrong = [f"{name} {title}" for name, title, body in commits_since(LAST_WITHOUT_BODY) if not body.strip()]
    assert not wrong, "\n".join(wrong)
