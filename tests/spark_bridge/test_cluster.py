"""A standalone cluster, one master and two workers: reading, kernels, and writes whose executor or driver is killed.

First a job that brings its Python along as an archive: it needs both workers, which a driver of the others would hold.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from engine.producer import Producer
from store.reading import extent
from store.reading.log_reader import open_log
from store.reading.summary import messages
from tests.harness.installed import shared_wheel
from tests.harness.spark_cluster import LOOPBACK, SparkCluster
from tests.spark_bridge.archives import DRIVER, make_environment, pack
from tests.spark_bridge.cluster_driver import CONF, ROWS
from tests.spark_bridge.flights import FlightProcess
from tools.common.local_broker import LocalBroker

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parent.parent.parent
DRIVER_SECONDS, POLL_SECONDS = 700, 0.05
FILES, LINES = 16, 375  # the driver is killed in the first, however late it is seen to have begun


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


class Driver:
    """A driver program in a session of its own, so that it can be killed with its JVM."""

    def __init__(self, master: str, store: str, directory: Path, *tasks: str) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark_bridge.cluster_driver", master, store, str(directory), *tasks],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._found: dict[str, dict[str, Any]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self._lines.put(line)
        self._lines.put("")

    def found(self, task: str) -> dict[str, Any]:
        """What that task found, once it is done."""
        while task not in self._found:
            line = self._lines.get(timeout=DRIVER_SECONDS)
            assert line, f"the driver ended before the task {task}: {self.process.wait(DRIVER_SECONDS)}"
            name, _, text = line.partition(": ")
            if text.startswith("{"):
                self._found[name] = json.loads(text)
        return self._found[task]

    def kill(self) -> None:
        """It and all that it started, unless it has ended."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()


@pytest.fixture(scope="module")
def driver(cluster: SparkCluster, store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """It reads, writes, and then begins the stream in which it is killed."""
    begun = Driver(cluster.url, store, tmp_path_factory.mktemp("driver"), "read", "write", "stream")
    yield begun
    begun.kill()


def bodies_of(store: str, topic: str) -> Counter[str]:
    reader = open_log(store)
    found = messages(reader, reader.min_offset, reader.max_offset)
    return Counter(bytes(message.body).decode() for message in found if message.topic == topic)


def submitted(cluster: SparkCluster, folder: Path, archive: Path, *paths: str) -> subprocess.CompletedProcess[str]:
    """The archive's driver, with nothing of this checkout on its way."""
    (folder / "driver.py").write_text(DRIVER)
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    python = "environment/bin/python"
    own = {"PYSPARK_PYTHON": f"./{python}", "PYSPARK_DRIVER_PYTHON": str(folder / python), "SPARK_LOCAL_IP": LOOPBACK}
    conf = {**CONF, "spark.driver.host": LOOPBACK, "spark.ui.enabled": "false", "spark.cores.max": "2"}
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        "--master",
        cluster.url,
        "--archives",
        f"{archive}#environment",
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
        "driver.py",
        *paths,
    ]
    return subprocess.run(
        command, cwd=folder, env={**kept, **own}, check=False, capture_output=True, text=True, timeout=DRIVER_SECONDS
    )


def test_executors_read_with_the_python_of_an_archive(
    cluster: SparkCluster, store: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    environment, archive = tmp_path / "driver" / "environment", tmp_path / "environment.tar.gz"
    make_environment(environment, shared_wheel(tmp_path_factory))
    pack(environment, archive)
    with FlightProcess(store, "--no-token") as server:
        ran = submitted(cluster, tmp_path / "driver", archive, store, server.location)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    in_place, remote = map(json.loads, ran.stdout.splitlines()[-2:])
    for found, replica in ((in_place, "in place"), (remote, server.location)):
        assert found["bodies"] == list(range(ROWS))
        for folder, prefix, package, source in found["places"]:
            assert prefix == f"{folder}/environment" and package.startswith(f"{prefix}/lib/") and source == replica
        assert len(found["places"]) == 2, "both executors"


def test_both_workers_read_the_files_of_this_host(driver: Driver) -> None:
    found = driver.found("read")
    assert (found["counted"], found["total"]) == (ROWS, sum(range(ROWS)))
    assert found["kernel"] >= ROWS
    assert found["executors"] == 2


def test_rows_of_a_killed_executor_are_written_once(driver: Driver, store: str) -> None:
    driver.found("write")
    assert bodies_of(store, "rows") == Counter(f"row {number}" for number in range(ROWS))


def test_rows_of_a_stream_whose_driver_is_killed_are_written_once(
    cluster: SparkCluster, driver: Driver, store: str
) -> None:
    driver.found("write")
    begin = extent.readable_range(store).max_physical_offset
    source = driver.directory / "unfinished"
    source.mkdir()
    for part in range(FILES):
        (source / f"{part}.txt").write_text("".join(f"{part} {number}\n" for number in range(LINES)))
    source.rename(driver.directory / "source")
    waiting = threading.Event()
    while extent.readable_range(store).max_physical_offset == begin and driver.process.poll() is None:
        waiting.wait(POLL_SECONDS)
    driver.kill()
    assert bodies_of(store, "lines").total() < FILES * LINES
    again = Driver(cluster.url, store, driver.directory, "stream")
    try:
        assert again.found("stream") == {"ended": True}
    finally:
        again.kill()
    expected = Counter(f"{part} {number}" for part in range(FILES) for number in range(LINES))
    assert bodies_of(store, "lines") == expected
