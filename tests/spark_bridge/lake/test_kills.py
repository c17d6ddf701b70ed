"""kill -9 of loaders at every kind of step of a commit: every message is one row. `make lake-kills` does more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark_bridge.lakes import FORMATS

ROOT = Path(__file__).resolve().parents[3]
KILLS, SEED = 10, 3

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("kind", FORMATS)
def test_every_message_is_one_row_after_ten_kills(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.spark_bridge.lake_kills", kind, str(tmp_path), "--kills", str(KILLS)]
    ran = subprocess.run(
        [*command, "--seed", str(SEED)], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert ran.returncode == 0, ran.stderr
    outcome = json.loads(ran.stdout)
    assert sum(kill["died"] for kill in outcome["kills"]) == KILLS
    assert len({kill["step"] for kill in outcome["kills"]}) >= KILLS - 2
    assert (outcome["missing"], outcome["repeated"]) == (0, 0)
    assert outcome["rows"] == outcome["sent"] == 1 + 25 * len(outcome["kills"])
