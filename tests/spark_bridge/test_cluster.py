"""A standalone cluster, one master and two workers: reading, kernels, and writes whose executor or driver is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.producer import Producer
from store.reading import extent
from store.reading.log_reader import open_log
from store.reading.summary import messages
from tests.harness.spark_cluster import SparkCluster
from tests.spark_bridge.cluster_driver import ROWS
from tools.common.local_broker import LocalBroker

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parent.parent.parent
DRIVER_SECONDS, POLL_SECONDS = 700, 0.05
FILES, LINES = 2, 3000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("cluster") / "master"
    with LocalBroker(directory, brokerRole="ASYNC_MASTER", mappedFileSizeCommitLog=1 << 19) as broker:
        with Producer(broker.store, timeout=60.0) as producer:
            producer.send_batch("before", [str(number).encode() for number in range(ROWS)])
        yield str(broker.store)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark")) as running:
        yield running


def start(*arguments: str) -> subprocess.Popen[str]:
    """A driver in a session of its own, so that it can be killed with its JVM."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark_bridge.cluster_driver", *arguments], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def finished(driver: subprocess.Popen[str]) -> dict[str, Any]:
    """What it found."""
    try:
        output, _ = driver.communicate(timeout=DRIVER_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(driver.pid, signal.SIGKILL)
        raise
    assert driver.returncode == 0
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def bodies_of(store: str, topic: str) -> Counter[str]:
    reader = open_log(store)
    found = messages(reader, reader.min_offset, reader.max_offset)
    return Counter(bytes(message.body).decode() for message in found if message.topic == topic)


def test_both_workers_read_the_files_of_this_host(cluster: SparkCluster, store: str) -> None:
    found = finished(start("read", cluster.url, store))
    assert (found["counted"], found["total"]) == (ROWS, sum(range(ROWS)))
    assert found["kernel"] >= ROWS
    assert found["executors"] == 2


def test_rows_of_a_killed_executor_are_written_once(cluster: SparkCluster, store: str) -> None:
    finished(start("write", cluster.url, store))
    assert bodies_of(store, "rows") == Counter(f"row {number}" for number in range(ROWS))


def test_rows_of_a_stream_whose_driver_is_killed_are_written_once(
    cluster: SparkCluster, store: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for part in range(FILES):
        (source / f"{part}.txt").write_text("".join(f"{part} {number}\n" for number in range(LINES)))
    killed = start("stream", cluster.url, store, str(tmp_path))
    begin = extent.readable_range(store).max_physical_offset
    waiting = threading.Event()
    while extent.readable_range(store).max_physical_offset == begin and killed.poll() is None:
        waiting.wait(POLL_SECONDS)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=DRIVER_SECONDS)
    assert bodies_of(store, "lines").total() < FILES * LINES
    assert finished(start("stream", cluster.url, store, str(tmp_path))) == {"ended": True}
    expected = Counter(f"{part} {number}" for part in range(FILES) for number in range(LINES))
    assert bodies_of(store, "lines") == expected
