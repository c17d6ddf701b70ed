"""How a broker ends: in order by each signal that ends commands, whatever descriptors it was given."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.cursors import RUNNING, Board
from engine.producer import Producer
from store import published
from store.published import readable_range
from tools.local_broker import LocalBroker, free_port

STOP_SECONDS = 120


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT], ids=lambda one: one.name)
def test_a_broker_stops_in_order(tmp_path: Path, number: signal.Signals) -> None:
    with LocalBroker(tmp_path / "b", mappedFileSizeCommitLog=1 << 20) as broker:
        regions = published.require_running(broker.store).region_directory
        with Producer(broker.store, timeout=30) as producer:
            producer.send("t", b"one")
        broker.process.send_signal(number)
        assert broker.process.wait(STOP_SECONDS) == 0
    assert not regions.exists() and not (broker.store / "abort").exists()
    assert published.running(broker.store) is None
    assert "Traceback" not in broker.log.read_text()


def test_under_nohup_a_broker_outlives_its_terminal(tmp_path: Path) -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a child inherits that
    try:
        with LocalBroker(tmp_path / "b", mappedFileSizeCommitLog=1 << 20) as broker:
            board = Board.attach(published.require_running(broker.store).region_directory, writable=True)
            broker.process.send_signal(signal.SIGHUP)
            for pid in {word.read() for word in board.pids.values()} - {0}:
                os.kill(pid, signal.SIGHUP)
            with Producer(broker.store, timeout=30) as producer:
                assert producer.send("t", b"one").status.name == "PUT_OK"
            assert board.broker_state.read() == RUNNING
            assert not any(word.read() for word in board.restarts.values())
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_a_broker_without_standard_descriptors_keeps_its_memory_to_itself(tmp_path: Path) -> None:
    (tmp_path / "broker.properties").write_text(
        f"brokerIP1=127.0.0.1\nlistenPort={free_port()}\nhaListenPort=0\nstorePathRootDir={tmp_path}/store\n"
        "mappedFileSizeCommitLog=1048576\nmetricsPromExporterPort=0\ndiskSpaceWarningLevelRatio=100\n"
    )
    command = f"exec {sys.executable} -m tools.cli broker -c {tmp_path}/broker.properties <&- >&- 2>&-"
    with subprocess.Popen(["sh", "-c", command]) as process:
        try:
            store = tmp_path / "store"
            while published.running(store) is None:
                assert process.poll() is None
            pids = Board.attach(published.require_running(store).region_directory).pids.values()
            for pid in (process.pid, *({word.read() for word in pids} - {0})):
                held = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)]
                assert held == ["/dev/null"] * 3, "nothing that is printed can come into a region or a socket"
            with Producer(store, timeout=30) as producer:
                assert producer.send("t", b"one").status.name == "PUT_OK"
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_SECONDS) == 0
        finally:
            process.kill()
    assert readable_range(store).max_physical_offset > 0
