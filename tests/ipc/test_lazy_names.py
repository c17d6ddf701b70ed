"""A public name that cannot be loaded says why, whatever makes the import fail; and what the environment forbids."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ipc.compiled import carried

ROOT = Path(__file__).parents[2]
LAZY = {"Producer": "numpy", "open_store": "numpy", "scan": "numpy", "session": "pyspark", "read": "pyspark"}


def asked(name: str, folder: Path, **environment: str) -> str:
    """The last line of what Python says to an import."""
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, '.'); from slipstream import {name}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), carried.ASKED: carried.BASELINE, **environment},
    )
    assert ran.returncode == 1, ran.stderr
    return ran.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(("name", "hidden"), LAZY.items())
def test_a_module_that_hides_a_package_is_named(name: str, hidden: str, tmp_path: Path) -> None:
    (tmp_path / hidden).mkdir()
    (tmp_path / "coverage").mkdir()
    (tmp_path / hidden / "__init__.py").write_text("import types; absent = types.nothing_of_this_name")
    said = asked(name, tmp_path)
    assert said.startswith("ImportError: slipstream." + name + " cannot be loaded: AttributeError: "), said
    assert "'types' has no attribute 'nothing_of_this_name'" in said and f"{hidden}/__init__.py, line 1" in said


def test_a_folder_that_hides_a_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "coverage").mkdir()
    said = asked("Producer", tmp_path)
    assert "module 'coverage' has no attribute" in said and f"is {tmp_path / 'coverage'}" in said, said


def test_without_a_compiler_the_reason_is_its_own_error(tmp_path: Path) -> None:
    assert asked("Producer", tmp_path, NUMBA_DISABLE_JIT="1").startswith("ipc.errors.CompilerOff: NUMBA_DISABLE_JIT")
    ran = subprocess.run(
        [sys.executable, "-m", "tools.cli", "log", "verify", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, carried.ASKED: carried.BASELINE, "NUMBA_DISABLE_JIT": "1"},
        cwd=ROOT,
    )
    assert ran.returncode in (2, 4) and "Traceback" not in ran.stderr, ran.stderr
