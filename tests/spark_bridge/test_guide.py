"""The guide's blocks run, one after the other, and say what the guide says; the example draws its pictures."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from engine.producer import Producer
from store.reading.extent import running
from tools.common.local_broker import LocalBroker, free_port
from tools.demo.samplers import SAMPLERS

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL_SECONDS, EXAMPLE_SECONDS = 230, 230
PLOTS = ("cpu", "memory", "network", "processes")


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
    assert len(blocks) >= 12
    for number, (kind, text) in enumerate(blocks, start=1):
        runners[kind](text, number)
    assert names["counted"] == 1200
    assert [row.n for row in names["newest"]] == [1000]
    assert names["offsets"] == list(range(10, 20))
    assert names["revenue"] == sum(number + 0.5 for number in range(1, 1001))
    assert sum(row["count"] for row in names["by_partition"]) == 1000
    assert sum(row[1] for row in names["histogram"].collect()) >= 1200
    assert (names["copies"].count(), names["copies"].first().body[:8]) == (1000, b'{"ORDER"')
    assert (names["totals"], names["refunds"]) == (100, 200)
    assert "did you mean 'topic'" in names["told"]


def test_the_example_draws_the_demonstrations_topics(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "master", brokerRole="ASYNC_MASTER", mappedFileSizeCommitLog=1 << 22) as broker:
        with Producer(broker.store, timeout=30.0) as producer:
            for _sample in range(4):
                for topic, sampler in SAMPLERS.items():
                    bodies = sampler()
                    if bodies:
                        producer.send_batch(topic, bodies, queue_id=0)
                threading.Event().wait(0.2)  # the kernel's clock of CPU times has to move on
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(
            [sys.executable, "docs/examples/host_topics.py", str(broker.store), str(tmp_path / "plots")],
            cwd=ROOT, env=environment, check=True, timeout=EXAMPLE_SECONDS, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    pictures = {path.stem: path.read_bytes() for path in (tmp_path / "plots").iterdir()}
    assert sorted(pictures) == sorted(PLOTS)
    assert all(data.startswith(b"\x89PNG") and len(data) > 4096 for data in pictures.values())
