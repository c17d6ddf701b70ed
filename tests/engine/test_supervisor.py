"""What the supervisor gives the processes that it forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from engine.board.cursors import Board
from engine.supervisor import YIELDING_NICENESS
from store.reading import extent
from tools.common.local_broker import LocalBroker


@pytest.mark.parametrize(("role", "yields"), [("SLAVE", {"dispatcher"}), ("ASYNC_MASTER", set())])
def test_a_slave_has_its_masters_bytes_before_it_builds_queues(tmp_path: Path, role: str, yields: set[str]) -> None:
    own = psutil.Process().nice()
    with LocalBroker(tmp_path / "broker", brokerRole=role, brokerId=int(role == "SLAVE")) as broker:
        board = Board.attach(extent.require_running(broker.store).region_directory)
        pids = {name: word.read() for name, word in board.pids.items()}
        nice = {name: psutil.Process(pid).nice() for name, pid in pids.items() if pid}
    assert "dispatcher" in nice and len(nice) > 5
    assert nice == {name: min(19, own + YIELDING_NICENESS) if name in yields else own for name in nice}


def test_one_role_runs_alone_and_moves_its_own_counters_only(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "broker", only=("flusher",)) as broker:
        board = Board.attach(extent.require_running(broker.store).region_directory)
        pids = {name for name, word in board.pids.items() if word.read()}
        end = board.max_physical_offset.read()
    assert (pids, end) == ({"flusher"}, 0)
    assert broker.process.returncode == 0, broker.log.read_text()


def test_a_role_that_a_broker_does_not_have_is_told_with_those_that_it_has(tmp_path: Path) -> None:
    properties = tmp_path / "broker.properties"
    properties.write_text(f"storePathRootDir={tmp_path / 'store'}\nbrokerIP1=127.0.0.1\n")
    command = [sys.executable, "-m", "tools.cli", "broker", "-c", str(properties), "--only", "receiver"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (ended.returncode, ended.stdout) == (4, "")
    line = ended.stderr.splitlines()[-1]
    why = "a broker of role ASYNC_MASTER does not have it"
    assert line.startswith(f"slipstream: START_REFUSED: --only receiver: {why}; ")
    assert line.endswith("group_transfer, writer, remoting, ha_listener")
