"""Commands whose output's encoding lacks letters of what they print: nothing is lost, and nothing ends them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.logs import SmallLog

LETTERS = "\u00e9\u03a9\U0001f600"
ENCODINGS = {
    "ascii": {"PYTHONIOENCODING": "ascii"}, "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "cp1252": {"PYTHONIOENCODING": "cp1252"}, "utf-8": {"PYTHONIOENCODING": "utf-8"},
    "C": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = SmallLog(tmp_path_factory.mktemp("encodings") / LETTERS)
    log.append("topic", LETTERS.encode(), properties={"KEYS": LETTERS, "TAGS": LETTERS, LETTERS: LETTERS})
    return log.root


@pytest.mark.parametrize("name", ENCODINGS)
def test_no_letter_ends_a_command_that_prints_messages_or_names(store: Path, name: str) -> None:
    for words in (["log", "cat"], ["log", "cat", "--json"]):
        ran = subprocess.run(
            [sys.executable, "-m", "tools.cli", *words, str(store)],
            capture_output=True,
            timeout=600,
            check=False,
            env={**os.environ, **ENCODINGS[name]},
        )
        assert ran.returncode in (0, 1) and b"Traceback" not in ran.stderr, ran.stderr
        assert ran.stdout, words
        if "--json" in words:
            for line in ran.stdout.decode(ENCODINGS[name].get("PYTHONIOENCODING", "ascii")).splitlines():
                json.loads(line)


def test_an_error_about_a_name_is_one_line(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tools.cli", "log", "cat", str(tmp_path / LETTERS)],
        capture_output=True,
        timeout=600,
        check=False,
        env={**os.environ, **ENCODINGS["ascii"]},
    )
    assert ran.returncode == 2 and ran.stderr.count(b"\n") == 1, ran.stderr
