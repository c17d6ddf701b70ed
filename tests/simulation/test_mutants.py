"""What the simulation is worth: protocols that are wrong in one line are told from the right one by their first seeds.

Some of each kind; `make simulate` has all of them.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

EACH = 5  # of the list


@pytest.mark.parametrize("first", [0])
def test_every_mutant_is_caught(first: int) -> None:
    command = [sys.executable, "-m", "tests.simulation.mutants", "--each", str(EACH), "--first", str(first)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("seed ") >= 10
