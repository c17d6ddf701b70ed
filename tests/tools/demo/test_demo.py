"""The main job, as `make run` does it, and the parts that decide whether all of it was true."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from tools.demo.demo import Checks, compare_logs, tell_sent
from tools.demo.producers import SAMPLERS, Report

TIMEOUT_SECONDS = 900
COMMAND = [sys.executable, "-m", "tools.cli", "run"]


@pytest.mark.spark
def test_the_main_job_on_real_input(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_bytes(b"first\n\nsecond\n" + b"x" * 5000 + b"\nlast")
    directory = tmp_path / "kept"
    ran = subprocess.run(
        [*COMMAND, "--seconds", "1", "--input", str(tmp_path / "lines.txt"), "--dir", str(directory)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    assert "FAIL" not in ran.stdout
    assert "the two commit logs are the same, byte for byte" in ran.stdout
    assert re.search(r"input\s+│\s+4\s+│\s+5,015", ran.stdout), ran.stdout
    assert "1 empty lines were left out" in ran.stdout
    assert ran.stdout.endswith("everything is true\n")
    assert not (directory / "master" / "store" / "slipstream.run").exists()
    logs = [(directory / name / "store" / "commitlog" / f"{0:020}").read_bytes() for name in ("master", "slave")]
    assert logs[0] == logs[1]


@pytest.mark.spark
def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    ran = subprocess.run([*COMMAND, "--dir", str(tmp_path)], capture_output=True, timeout=300, check=False)
    assert ran.returncode == 2
    assert b"not empty" in ran.stderr


@pytest.mark.crash
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen([*COMMAND, "--seconds", "60"], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert b"are up after" in process.stdout.readline()
        process.send_signal(number)
        process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("topic", SAMPLERS)
def test_samples_are_json_messages_that_fit(topic: str) -> None:
    bodies = SAMPLERS[topic]()
    assert all(isinstance(json.loads(body), dict) and len(body) < 100_000 for body in bodies)
    if topic == "host-process":
        assert os.getpid() in {json.loads(body)["pid"] for body in bodies}


@pytest.mark.parametrize(
    ("reports", "good"),
    [
        ([Report("a", Counter(t=2), Counter(t=9), Counter(PUT_OK=2))], True),
        ([Report("a", Counter(t=2), Counter(t=9), Counter(PUT_OK=1, FLUSH_SLAVE_TIMEOUT=1))], False),
        ([Report("a", Counter(t=2), Counter(t=9), Counter(PUT_OK=2)), Report("b", error="ended")], False),
        ([Report("a")], False),
    ],
)
def test_one_message_without_put_ok_fails_the_run(reports: list[Report], good: bool) -> None:
    console = Console(file=io.StringIO())
    checks = Checks(console)
    tell_sent(console, checks, reports, 1.0)
    assert checks.all_true is good


def test_logs_that_differ_or_hold_nothing_fail_the_run(tmp_path: Path) -> None:
    logs = [tmp_path / name / "commitlog" / f"{0:020}" for name in ("a", "b")]
    for log in logs:
        log.parent.mkdir(parents=True)
        log.write_bytes(bytes(4096))
    checks = Checks(Console(file=io.StringIO()))
    compare_logs(checks, tmp_path / "a", tmp_path / "b")
    assert not checks.all_true
