"""How a broker ends: in order by each signal that ends commands, whatever descriptors it was given."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from engine import role
from engine.producer import Producer
from engine.remoting import clients
from engine.replication.ha_senders import pidfd_of
from engine.shared_memory.cursors import BrokerCounters, BrokerState
from ipc.compiled import carried
from ipc.descriptors import await_readable
from store.reading import extent
from store.reading.extent import readable_range
from tests.harness.conditions import await_that
from tests.harness.ha_node import Node, wait_until
from tools.common.local_broker import LocalBroker, free_port

STOP_SECONDS = 120
DAY_MS = 86_400_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda one: one.name)  # SIGHUP: test_reload
def test_a_broker_stops_in_order(tmp_path: Path, number: signal.Signals) -> None:
    with LocalBroker(tmp_path / "b", mappedFileSizeCommitLog=1 << 20) as broker:
        regions = extent.require_running(broker.store).region_directory
        with Producer(broker.store, timeout=STOP_SECONDS) as producer:
            producer.send("t", b"one")
        broker.process.send_signal(number)
        assert broker.process.wait(STOP_SECONDS) == 0
    assert not regions.exists() and not (broker.store / "abort").exists()
    assert extent.running(broker.store) is None
    assert "Traceback" not in broker.log.read_text()


def test_under_nohup_a_broker_outlives_its_terminal(tmp_path: Path) -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a child inherits that
    try:
        with LocalBroker(tmp_path / "b", mappedFileSizeCommitLog=1 << 20) as broker:
            counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)
            broker.process.send_signal(signal.SIGHUP)
            for pid in {word.read() for word in counters.pids.values()} - {0}:
                os.kill(pid, signal.SIGHUP)
            with Producer(broker.store, timeout=STOP_SECONDS) as producer:
                assert producer.send("t", b"one").status.name == "PUT_OK"
            assert counters.broker_state.read() == BrokerState.RUNNING
            assert not any(word.read() for word in counters.restarts.values())
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
            await_that(lambda: process.poll() is not None or extent.running(store), "it runs")
            assert process.poll() is None
            pids = BrokerCounters.attach(extent.require_running(store).region_directory).pids.values()
            for pid in (process.pid, *({word.read() for word in pids} - {0})):
                held = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)]
                assert held == ["/dev/null"] * 3, "nothing that is printed can come into a region or a socket"
            with Producer(store, timeout=STOP_SECONDS) as producer:
                assert producer.send("t", b"one").status.name == "PUT_OK"
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_SECONDS) == 0
        finally:
            process.kill()
    assert readable_range(store).max_physical_offset > 0


@pytest.mark.parametrize(("name", "master"), [("ha_listener", None), ("clients", None), ("receiver", 1)])
def test_a_role_that_would_sleep_for_a_day_ends_when_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, master: int | None
) -> None:
    monkeypatch.setattr(role, "IDLE_MS_MAX", DAY_MS)
    monkeypatch.setattr(clients, "TURN_MS_MAX", DAY_MS)
    settings = {"listenPort": free_port(), "metricsPromExporterPort": 0, "haReconnectInterval": DAY_MS}
    with Node(tmp_path, master, **settings) as node:
        node.start(name)
        wait_until(node.counters.heartbeats[name], lambda beat: beat != 0)
        process = psutil.Process(node.pids[name])
        await_that(lambda: process.status() == psutil.STATUS_SLEEPING, f"{name} sleeps")
        process.terminate()
        pidfd = pidfd_of(process.pid)
        assert await_readable(pidfd, timeout_ms=STOP_SECONDS * 1000)
        os.close(pidfd)


STOPPED_AT_THE_FIRST_COMPILATION = """
import os, signal, sys
from pathlib import Path
from numba.core import event
from ipc.compiled import kernel_folders
from tools.cli import run_command

kernel_folders.BESIDE_SOURCES = Path(sys.argv[2])  # nothing is compiled yet, wherever that is kept

class First(event.Listener):
    begun = 0

    def on_start(self, event):
        self.begun += 1
        if self.begun == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_end(self, event):
        pass

first = First()
event.register("numba:compile", first)
code = run_command(["broker", "-c", sys.argv[1]])
assert first.begun == 1, f"{first.begun} functions were compiled after the signal"
sys.exit(code)
"""


def test_a_stop_does_not_wait_for_the_compilation_of_all_kernels(tmp_path: Path) -> None:
    store, regions, kernels = (tmp_path / name for name in ("store", "regions", "kernels"))
    regions.mkdir()
    kernels.mkdir()
    (tmp_path / "broker.properties").write_text(
        f"brokerIP1=127.0.0.1\nlistenPort={free_port()}\nstorePathRootDir={store}\nregionPath={regions}\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", STOPPED_AT_THE_FIRST_COMPILATION, str(tmp_path / "broker.properties"), str(kernels)],
        timeout=STOP_SECONDS,
        env={**os.environ, carried.ASKED: carried.BASELINE, "NUMBA_CACHE_DIR": str(kernels)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
    assert "stopped while compiling" in ran.stderr
    assert not list(regions.iterdir()) and not (store / "abort").exists()
