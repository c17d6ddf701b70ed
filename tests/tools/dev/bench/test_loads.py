"""Loads that are programs in C, where there is nothing to compile them with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from tools.dev.bench.__main__ import main

WITH_PROGRAMS = ("front-sends", "front-consume", "front-idle", "delays", "wakeups")


def test_without_a_compiler_each_says_so_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    outcome = CliRunner().invoke(main, [*WITH_PROGRAMS, "--directory", str(tmp_path)])
    assert outcome.exit_code == 0, outcome.output
    for name in WITH_PROGRAMS:
        assert f"{name}: there is no C compiler (cc), so nothing is measured\n" in outcome.output
    assert not list(tmp_path.iterdir())
