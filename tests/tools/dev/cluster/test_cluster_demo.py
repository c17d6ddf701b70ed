"""The cluster on hosts made of namespaces, in its small form: what it reads, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.harness import spark_java
from tests.harness.conditions import await_that
from tools.dev.cluster import enclosure
from tools.dev.cluster.driver import add, digest_of
from tools.dev.cluster.ledger import cost, page, remote_share
from tools.dev.cluster.orders import bodies
from tools.dev.cluster.play import Outcome, Size, by_source, share_in_place, total
from tools.dev.cluster.rate import Rate

ROOT = Path(__file__).resolve().parents[4]
COMMAND = [sys.executable, "-m", "tools.dev.cluster", "--small"]
SECONDS = 900
PARTS = [
    {"part": 0, "host": "node1", "replica": "in place", "rows": 3, "bytes": 30, "digest": 5},
    {"part": 1, "host": "node3", "replica": "grpc://node1:8815", "rows": 1, "bytes": 10, "digest": (1 << 60) - 1},
    {"part": 2, "host": "node1", "replica": "in place", "rows": 2, "bytes": 20, "digest": 7},
]


def why_not() -> str:
    try:
        enclosure.way_in()
    except enclosure.NoNamespaces as error:
        return str(error)
    return ""


WHY_NOT = why_not()
in_namespaces = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


class Surroundings:
    """What of a run could be left: folders, mounts, interfaces, processes that name its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = self._network()

    @staticmethod
    def _network() -> str:
        return " ".join(sorted(line.partition(":")[0] for line in Path("/proc/net/dev").read_text().splitlines()[2:]))

    def left(self) -> list[str]:
        mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(self._folder) in line]
        running = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
        processes = [command for command in running if str(self._folder) in command]
        links = [] if self._network() == self._before else ["an interface"]
        return [*map(str, self._folder.iterdir()), *mounts, *processes, *links]


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return Surroundings(tmp_path)


@in_namespaces
@pytest.mark.spark
def test_a_small_cluster_reads_loses_a_replica_and_leaves_nothing(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS", "SPARK_SUBMIT_OPTS", "SPARK_HOME"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # what is told to Spark is this test's alone
        if not os.environ[name]:
            monkeypatch.delenv(name)
    spark_java.prepare()
    ran = subprocess.run(COMMAND, cwd=ROOT, check=False, capture_output=True, text=True, timeout=SECONDS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith("everything is true\n") and "FAIL" not in ran.stdout
    assert "split went on at another replica in its midst" in ran.stdout
    await_that(lambda: not surroundings.left(), f"nothing is left: {surroundings.left()}")


@in_namespaces
@pytest.mark.broker
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_nothing(surroundings: Surroundings, tmp_path: Path, number: signal.Signals) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(COMMAND, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    with process:
        assert process.stdout is not None and b"nodes: node0" in process.stdout.readline()
        process.send_signal(number)
        process.communicate(timeout=SECONDS)  # until nobody holds the other end: all in there have ended
    assert process.returncode == (-9 if number == signal.SIGKILL else 130)
    if number == signal.SIGKILL:  # who is killed removes no folder; there is nothing in it
        (place,) = tmp_path.iterdir()
        place.rmdir()
    await_that(lambda: not surroundings.left(), f"nothing is left: {surroundings.left()}")


def test_without_the_programs_it_says_in_one_line_what_to_install(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path)}
    ran = subprocess.run(COMMAND, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert ran.returncode == 2 and len(ran.stderr.splitlines()) == 1
    assert ran.stderr.startswith("slipstream: NO_NAMESPACES: no ip, ") and "apt-get install" in ran.stderr


def test_without_rights_it_says_in_one_line_what_it_takes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in enclosure.PROGRAMS:
        (tmp_path / name).write_text("#!/bin/sh\necho 'unshare: Operation not permitted' >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(enclosure.NoNamespaces, match=r"\(unshare: Operation not permitted\); it takes root with"):
        enclosure.way_in()


def test_tasks_are_added_up_by_executor_and_source() -> None:
    assert by_source(PARTS) == {("node1", "in place"): (2, 5, 50), ("node3", "grpc://node1:8815"): (1, 1, 10)}
    assert total(PARTS) == (6, 60, 11)
    assert share_in_place(PARTS) == 50 / 60 and share_in_place([]) == 0


def test_a_digest_tells_every_body_and_no_order() -> None:
    one, two = digest_of(b"one"), digest_of(b"two")
    assert add(one, two) == add(two, one) != add(one, one) and 0 <= add(one, two) < 1 << 60


def test_bodies_are_known_by_their_number() -> None:
    every = list(bodies(300, 100))
    assert every == list(bodies(300, 100)) and len(set(every)) == 300
    assert 50 <= min(map(len, every)) < max(map(len, every)) <= 150


@pytest.mark.parametrize(
    ("hosts", "replicas", "share", "times"), [(3, 2, 1 / 3, 4 / 3), (100, 2, 0.98, 1.98), (2, 2, 0, 1), (1, 2, 0, 1)]
)
def test_placement_by_arithmetic(hosts: int, replicas: int, share: float, times: float) -> None:
    assert remote_share(hosts, replicas) == pytest.approx(share)
    assert cost(hosts, replicas, 2.0) == pytest.approx(times)


def test_the_page_has_every_figure() -> None:
    outcome = Outcome(Size(), {"batch": PARTS, "placed": PARTS[:1]}, {"batch": 1.25, "placed": 0.5})
    outcome.rates.update({"in place": Rate(3e8, 2.0), "grpc": Rate(1e8, 5.0)})
    text = page(outcome)
    assert "## Batch: 1.2 s" in text and "| node3 | grpc://node1:8815 | 1 | 1 | 10 |" in text
    assert "83% of the bytes were read in place without a wish, 100% with" in text
    assert "costs 2.5 times" in text and "| 100 | 2 | 98% | 2.5 |" in text
