"""The guide's blocks run, one after the other, and say what the guide says; the example draws its pictures."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine.producer import Producer
from tests.harness.page_blocks import ROOT, Session, commands_in_path
from tools.common.local_broker import LocalBroker, free_port
from tools.demo.producers import SAMPLERS

pytestmark = pytest.mark.spark

EXAMPLE_SECONDS = 600
PLOTS = ("cpu", "log", "memory", "network", "processes")


def test_every_block_of_the_guide_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert spark is not None  # the guide's session is this one
    with (
        commands_in_path(monkeypatch, tmp_path),
        Session("spark.md", tmp_path, {"10911": free_port()}) as session,
    ):
        assert session.run() >= 12
        names = session.names
        assert names["counted"] == 1200
        assert [row.n for row in names["newest"]] == [1000]
        assert names["by_heads"] == sorted(tuple(row) for row in names["total"])
        assert names["offsets"] == list(range(10, 20))
        assert names["revenue"] == sum(number + 0.5 for number in range(1, 1001))
        assert sum(row["count"] for row in names["by_partition"]) == 1000
        assert sum(row[1] for row in names["histogram"].collect()) >= 1200
        assert (names["copies"].count(), names["copies"].first().body[:8]) == (1000, b'{"ORDER"')
        assert (names["totals"], names["refunds"]) == (100, 200)
        assert "did you mean 'topic'" in names["told"]


def test_the_example_draws_the_demonstrations_topics(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "master", brokerRole="ASYNC_MASTER", mappedFileSizeCommitLog=1 << 22) as broker:
        with Producer(broker.store, timeout=60.0) as producer:
            for _sample in range(4):
                for topic, sampler in SAMPLERS.items():
                    bodies = sampler()
                    if bodies:
                        producer.send_batch(topic, bodies, queue_id=0)
                threading.Event().wait(0.2)  # the kernel's clock of CPU times has to move on
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(
            [sys.executable, "docs/examples/host_topics.py", str(broker.store), str(tmp_path / "plots")],
            cwd=ROOT,
            env=environment,
            check=True,
            timeout=EXAMPLE_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    pictures = {path.stem: path.read_bytes() for path in (tmp_path / "plots").iterdir()}
    assert sorted(pictures) == sorted(PLOTS)
    assert all(data.startswith(b"\x89PNG") and len(data) > 4096 for data in pictures.values())
