"""The guide's blocks run, one after the other, and say what the guide says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from store.published import running
from tools.local_broker import free_port

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL_SECONDS = 230


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory to run the blocks in; the broker that they start is stopped."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(dict.fromkeys(paths)))
    yield tmp_path
    broker = running(tmp_path / "guide" / "store")
    if broker is not None:
        os.kill(broker.pid, signal.SIGTERM)


def run_shell(text: str) -> None:
    text = text.replace("listenPort=10911", f"listenPort={free_port()}")
    subprocess.run(["sh", "-e", "-c", text], check=True, timeout=SHELL_SECONDS, stdin=subprocess.DEVNULL)


def run_python(text: str, number: int, names: dict[str, Any]) -> None:
    exec(compile(text, f"docs/spark.md, block {number}", "exec"), names)


def test_every_block_of_the_guide_runs(spark: SparkSession, directory: Path) -> None:
    assert spark is not None  # the guide's session is this one
    names: dict[str, Any] = {"__name__": "guide"}
    runners: dict[str, Callable[[str, int], None]] = {
        "sh": lambda text, _number: run_shell(text),
        "python": lambda text, number: run_python(text, number, names),
    }
    blocks = BLOCK.findall((ROOT / "docs" / "spark.md").read_text())
    assert len(blocks) >= 11
    for number, (kind, text) in enumerate(blocks, start=1):
        runners[kind](text, number)
    assert names["counted"] == 1200
    assert [row.n for row in names["newest"]] == [1000]
    assert names["offsets"] == list(range(10, 20))
    assert names["revenue"] == sum(number + 0.5 for number in range(1, 1001))
    assert sum(row["count"] for row in names["by_partition"]) == 1000
    assert sum(row[1] for row in names["histogram"].collect()) >= 1200
    assert (names["copies"].count(), names["copies"].first().body[:8]) == (1000, b'{"ORDER"')
    assert names["totals"] == 100
    assert "did you mean 'topic'" in names["told"]
