"""What the supervisor gives the processes that it forks."""

from __future__ import annotations

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
