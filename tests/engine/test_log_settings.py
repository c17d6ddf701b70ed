"""The log of a whole broker as its file asks for it: all roles in one file, moved on the way, its level changed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.shared_memory.cursors import BrokerCounters
from ipc.descriptors import await_readable
from store.reading import extent
from tests.harness.conditions import await_that
from tests.harness.whole_lines import whole_lines
from tools.common.local_broker import LocalBroker, free_port

MAX_BYTES = 65536
pytestmark = pytest.mark.broker


def lines_of(path: Path) -> list[str]:
    files = sorted(path.parent.glob(f"{path.name}*"), key=lambda file: file.name, reverse=True)
    return [line for file in files for line in whole_lines(file)]


def test_every_role_logs_into_one_file_that_is_moved_aside_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "broker.log"
    path.parent.mkdir()
    path.write_text("x" * (MAX_BYTES - 600) + "\n")  # full after the first lines
    keys = {"logFile": path, "logForm": "json", "logLevel": "debug", "logFileMaxBytes": MAX_BYTES, "logFilesKept": 50}
    with LocalBroker(tmp_path / "b", inside=("setsid",), mappedFileSizeCommitLog=1 << 20, **keys) as broker:
        counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory)
        roles = {name: word.read() for name, word in counters.pids.items() if word.read()}
        served = {f"{name} serves": pid for name, pid in roles.items()}

        def said() -> dict[str, int]:
            return {of["message"]: of["process"] for of in map(json.loads, lines_of(path)[1:])}

        await_that(lambda: served.items() <= said().items(), "each role has said that it serves")
        file = tmp_path / "b" / "broker.properties"
        file.write_text(file.read_text().replace("logLevel=debug", "logLevel=warning"))
        broker.process.send_signal(signal.SIGHUP)
        await_that(lambda: counters.log_level.read() == 30, "the level is another")
    ended = [of for of in map(json.loads, lines_of(path)[1:]) if of["message"].endswith(" has ended")]
    assert broker.process.returncode == 0 and not ended, "nobody says now what is for debugging"
    assert (path.parent / "broker.log.1").stat().st_size <= 2 * MAX_BYTES
    assert {of["role"] for of in map(json.loads, lines_of(path)[1:])} >= set(roles)
    assert broker.log.read_text().count("\n") == 1, "only the ready line is elsewhere"


def test_a_log_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    for keys, where in (
        (f"logFile={tmp_path}\n", "Is a directory"),
        (f"logFile={tmp_path}/store/commitlog/x\n", "inside the store"),
        ("logLevel=loud\n", "debug, info, warning or error"),
        ("logFileMaxBytes=100\n", "65536"),
    ):
        (tmp_path / "broker.properties").write_text(
            f"brokerIP1=127.0.0.1\nlistenPort={free_port()}\nstorePathRootDir={tmp_path}/store\n{keys}"
        )
        command = [sys.executable, "-m", "tools.cli", "broker", "-c", str(tmp_path / "broker.properties")]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert (ran.returncode != 0, ran.stderr.count("\n")) == (True, 1), ran.stderr
        assert where in ran.stderr


def test_a_name_server_takes_the_same_keys(tmp_path: Path) -> None:
    path, file = tmp_path / "ns.log", tmp_path / "namesrv.properties"
    file.write_text(f"listenPort=0\nbindAddress=127.0.0.1\nlogFile={path}\nlogLevel=error\n")
    command = ["setsid", sys.executable, "-m", "tools.cli", "namesrv", "-c", str(file), "--directory", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline().startswith("ready:")
        file.write_text(file.read_text().replace("error", "info"))
        process.send_signal(signal.SIGHUP)
        await_that(lambda: "applied: logLevel=info" in path.read_text(), "the level is another")
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == 0


def test_under_the_journal_lines_have_a_priority_and_no_time(tmp_path: Path) -> None:
    read, written = os.pipe()
    state = os.fstat(written)
    file = tmp_path / "namesrv.properties"
    file.write_text("listenPort=0\nbindAddress=127.0.0.1\n")
    command = ["setsid", sys.executable, "-m", "tools.cli", "namesrv", "-c", str(file), "--directory", str(tmp_path)]
    environment = {**os.environ, "JOURNAL_STREAM": f"{state.st_dev}:{state.st_ino}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=written, text=True, env=environment) as process:
        os.close(written)
        assert process.stdout is not None and process.stdout.readline().startswith("ready:")
        process.send_signal(signal.SIGHUP)
        with os.fdopen(read) as journal:
            assert await_readable(journal, timeout_ms=180_000), "the journal has no line"
            assert re.fullmatch(r"<6>\d+ INFO SIGHUP: .* was read: nothing has changed.*\n", journal.readline())
            process.send_signal(signal.SIGTERM)
            assert process.wait(180) == 0
