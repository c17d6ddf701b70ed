"""SIGHUP at a running broker and a running name server: what is applied, what is refused, and whom a terminal ends."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.shared_memory import live_settings
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.region_directory import settings_request
from ipc.descriptors import await_readable
from store.reading import extent
from tests.harness.conditions import await_that
from tests.harness.service_manager import listening
from tests.harness.whole_lines import whole_lines
from tools.common.local_broker import LocalBroker, free_port

SECONDS = 180
SERVICE = ("setsid",)  # as a service manager starts it: no terminal
pytestmark = pytest.mark.broker


def rewrite(file: Path, **keys: object) -> None:
    """Other values of these keys in that properties file."""
    kept = [line for line in file.read_text().splitlines() if line.partition("=")[0] not in keys]
    file.write_text("".join(f"{line}\n" for line in [*kept, *(f"{key}={value}" for key, value in keys.items())]))


def lines_of(log: Path, word: str = "SIGHUP: ") -> list[str]:
    return [line.partition(word)[2] for line in whole_lines(log) if word in line]


def next_line(broker: LocalBroker) -> str:
    """What a broker says of its file, read again now."""
    seen = len(lines_of(broker.log))
    broker.process.send_signal(signal.SIGHUP)
    return await_that(lambda: lines_of(broker.log)[seen:], "it says what it read")[0]


def counters_of(broker: LocalBroker) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)


def test_a_broker_applies_what_may_change_and_names_the_rest(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", inside=SERVICE, mappedFileSizeCommitLog=1 << 20) as broker:
        file, counters = tmp_path / "b" / "broker.properties", counters_of(broker)
        pids = {name: word.read() for name, word in counters.pids.items()}
        assert next_line(broker) == f"{file} was read: nothing has changed"
        rewrite(file, fileReservedTime=48, deleteWhen="01;02", maxMessageSize=1000, slaveTimeout=7)
        assert next_line(broker) == (
            f"{file} was read; applied: deleteWhen=01;02 (it was 04), fileReservedTime=48 (it was 72);"
            " need a restart: maxMessageSize, slaveTimeout"
        )
        assert live_settings.retention(counters)[:2] == ({1, 2}, 48)
        rewrite(file, fileReservedTime=12, brokerRole="KING")
        refused = next_line(broker)
        assert refused.startswith("nothing was changed: ") and "brokerRole=KING" in refused
        assert live_settings.retention(counters)[:2] == ({1, 2}, 48)
        file.unlink()
        assert "cannot be read" in next_line(broker)
        assert {name: word.read() for name, word in counters.pids.items()} == pids
    assert broker.process.returncode == 0


def test_what_nobody_can_take_yet_is_taken_when_the_clients_role_is_back(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", inside=SERVICE, mappedFileSizeCommitLog=1 << 20) as broker:
        counters = counters_of(broker)
        rewrite(tmp_path / "b" / "broker.properties", fileReservedTime=5)
        os.kill(counters.pids["clients"].read(), signal.SIGSTOP)
        seen = len(lines_of(broker.log))
        for _ in range(3):
            broker.process.send_signal(signal.SIGHUP)
        await_that(lambda: settings_request.is_pending(counters.directory), "the clients role is asked")
        os.kill(counters.pids["clients"].read(), signal.SIGKILL)
        assert "fileReservedTime=5 (it was 72)" in await_that(lambda: lines_of(broker.log)[seen:], "it is taken")[0]
        assert counters.file_reserved_hours.read() == 5


def test_a_role_alone_is_reloaded_too(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", inside=SERVICE, only=("flusher",)) as broker:
        rewrite(tmp_path / "b" / "broker.properties", fileReservedTime=5)
        assert "fileReservedTime=5 (it was 72)" in next_line(broker)


def test_a_request_that_comes_while_another_is_taken_is_not_lost(tmp_path: Path) -> None:
    settings_request.write(tmp_path, {"fileReservedTime": 1})
    assert settings_request.take(tmp_path) == {"fileReservedTime": 1}
    settings_request.write(tmp_path, {"fileReservedTime": 2})
    settings_request.done(tmp_path)
    assert settings_request.is_pending(tmp_path)
    assert settings_request.take(tmp_path) == {"fileReservedTime": 2}
    assert settings_request.take(tmp_path) == {"fileReservedTime": 2}, "killed before it was done"
    settings_request.done(tmp_path)
    assert (settings_request.take(tmp_path), settings_request.is_pending(tmp_path)) == ({}, False)
    (tmp_path / settings_request.NAME).write_text("{}")
    assert settings_request.take(tmp_path) == {}


def settings_of(store: Path) -> str:
    return (
        f"brokerIP1=127.0.0.1\nlistenPort={free_port()}\nstorePathRootDir={store}\nmappedFileSizeCommitLog=1048576\n"
        "metricsPromExporterPort=0\ndiskSpaceWarningLevelRatio=100\n"
    )


def in_a_terminal(*arguments: str) -> tuple[int, int]:
    """A command that leads a session of its own at a terminal of its own: its process, the terminal's other end."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "tools.cli", *arguments])
    return pid, terminal


def exit_code(pid: int) -> int:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        await_readable(timeout_ms=20)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("it did not end")


def test_a_broker_in_a_terminal_stops_in_order_when_that_goes(tmp_path: Path) -> None:
    store, file = tmp_path / "store", tmp_path / "broker.properties"
    file.write_text(settings_of(store))
    pid, terminal = in_a_terminal("broker", "-c", str(file))
    await_that(lambda: extent.running(store), "it runs")
    os.close(terminal)
    assert exit_code(pid) == 0
    assert extent.running(store) is None and not (store / "abort").exists()


@pytest.mark.parametrize("reader", ["true", "head -c 3"])
def test_a_broker_whose_ready_line_nobody_reads_serves(tmp_path: Path, reader: str) -> None:
    command = f"{sys.executable} -m tools.cli broker -c {tmp_path}/broker.properties 2>{tmp_path}/log | {reader}"
    (tmp_path / "broker.properties").write_text(settings_of(tmp_path / "store"))
    with subprocess.Popen(["sh", "-c", command]) as shell:
        broker = await_that(lambda: extent.running(tmp_path / "store"), "it runs")
        os.kill(broker.pid, signal.SIGTERM)
        assert shell.wait(SECONDS) == 0
    assert not (tmp_path / "store" / "abort").exists()


def test_a_name_server_in_a_terminal_stops_when_that_goes(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_text("listenPort=0\nbindAddress=127.0.0.1\n")
    pid, terminal = in_a_terminal("namesrv", "-c", str(file), "--directory", str(tmp_path))
    said = b""
    while b"ready:" not in said:
        said += os.read(terminal, 4096)
    os.close(terminal)
    assert exit_code(pid) == 0


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """What systemd listens at."""
    with listening(tmp_path / "notify", SECONDS) as manager:
        yield manager


def said_to(manager: socket.socket, count: int) -> list[str]:
    """What a service says next, but that it lives."""
    said: list[str] = []
    while len(said) < count:
        text = manager.recv(4096).decode()
        said += [text] if not text.startswith("WATCHDOG=1") else []
    return said


def test_a_name_server_applies_what_may_change_and_tells_its_manager(tmp_path: Path, manager: socket.socket) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_text("listenPort=0\nbindAddress=127.0.0.1\n")
    command = [*SERVICE, sys.executable, "-m", "tools.cli", "namesrv", "-c", str(file), "--directory", str(tmp_path)]
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            assert said_to(manager, 1)[0].startswith("READY=1\nSTATUS=name server on 127.0.0.1:")
            rewrite(file, orderMessageEnable="true", remotingConnectionsMax=9)
            process.send_signal(signal.SIGHUP)
            begun, ended = said_to(manager, 2)
            assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", begun)
            outcome = "was read; applied: orderMessageEnable=true; need a restart: remotingConnectionsMax"
            assert ended == f"READY=1\nSTATUS={file} {outcome}"
            rewrite(file, orderMessageEnable="perhaps")
            process.send_signal(signal.SIGHUP)
            assert said_to(manager, 2)[1].startswith("READY=1\nSTATUS=nothing was changed: ")
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


def test_a_broker_tells_its_manager(tmp_path: Path, manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with LocalBroker(tmp_path / "b", inside=SERVICE, mappedFileSizeCommitLog=1 << 20) as broker:
        assert said_to(manager, 1)[0].startswith("READY=1\nSTATUS=ASYNC_MASTER")
        rewrite(tmp_path / "b" / "broker.properties", brokerPermission=4)
        broker.process.send_signal(signal.SIGHUP)
        begun, ended = said_to(manager, 2)
        assert begun.startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert ended.endswith("applied: brokerPermission=4 (it was 6)")
