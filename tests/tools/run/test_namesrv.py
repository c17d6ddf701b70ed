"""`slipstream namesrv` as a process: it serves, keeps its key-value config, stops when told, and says what is wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import FrameSplitter, RemotingCommand, decode, encode
from ipc.process import start_time
from tests.harness.command_line import run
from tests.harness.conditions import await_that

COMMAND = [sys.executable, "-m", "tools.cli", "namesrv", "--host", "127.0.0.1"]
SECONDS = 120
pytestmark = pytest.mark.broker


@contextmanager
def running(directory: Path, *more: str, end: signal.Signals = signal.SIGTERM) -> Iterator[int]:
    """A name server until that signal; its port."""
    arguments = [*COMMAND, "--port", "0", "--directory", str(directory), *more]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready: name server on 127.0.0.1:")
        try:
            yield int(line.split("127.0.0.1:")[1].split(",")[0])
        finally:
            process.send_signal(end)
            assert process.wait(SECONDS) == (0 if end is signal.SIGTERM else -end)


def ask(port: int, code: int, body: bytes = b"", **ext: str) -> RemotingCommand:
    splitter, found = FrameSplitter(), []
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as peer:
        peer.sendall(encode(RemotingCommand(code, ext_fields=ext, body=body)))
        while not found:
            found = splitter.feed(peer.recv(65536))
    return decode(found[0])


def refused(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], check=False, capture_output=True, text=True, timeout=SECONDS)


def test_key_values_outlive_a_restart(tmp_path: Path) -> None:
    with running(tmp_path / "ns") as port:
        assert ask(port, RequestCode.PUT_KV_CONFIG, namespace="n", key="schlüssel", value="wert").code == 0
    with running(tmp_path / "ns") as port:
        assert ask(port, RequestCode.GET_KV_CONFIG, namespace="n", key="schlüssel").ext_fields == {"value": "wert"}


def test_a_broker_is_forgotten_when_its_connection_ends(tmp_path: Path) -> None:
    names = {"clusterName": "c", "brokerName": "a", "brokerId": "0", "brokerAddr": "h:1", "haServerAddr": "h:2"}
    with running(tmp_path) as port, socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as broker:
        broker.sendall(encode(RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=names)))
        assert broker.recv(65536)
        assert b'"a"' in bytes(ask(port, RequestCode.GET_BROKER_CLUSTER_INFO).body)
        broker.shutdown(socket.SHUT_WR)
        assert broker.recv(65536) == b""
        nobody = {"brokerAddrTable": {}, "clusterAddrTable": {}}
        cluster = RequestCode.GET_BROKER_CLUSTER_INFO
        await_that(lambda: json.loads(bytes(ask(port, cluster).body)) == nobody, "it is forgotten")


def test_a_damaged_file_is_kept_and_its_backup_used(tmp_path: Path) -> None:
    config = tmp_path / "ns" / "kvConfig.json"
    with running(tmp_path / "ns") as port:
        for value in ("old", "new"):
            assert ask(port, RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value=value).code == 0
    for damage in (b"[]", b"", bytes(100)):
        config.write_bytes(damage)
        with running(tmp_path / "ns") as port:
            assert ask(port, RequestCode.GET_KV_CONFIG, namespace="n", key="k").ext_fields == {"value": "old"}
            assert ask(port, RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="old").code == 0
            ran = run("doctor", "--json", "--timeout", str(SECONDS), f"127.0.0.1:{port}")
            (row,) = [row for row in json.loads(ran.stdout)["rows"] if row["level"] == "wrong"]
            assert (ran.exit_code, row["reason"]) == (1, "TABLE") and f"{config}.aside" in row["what"]
    assert {one.read_bytes() for one in config.parent.glob("kvConfig.json.aside*")} == {b"[]", b"", bytes(100)}


@pytest.mark.crash
def test_answered_changes_are_there_after_kill_9(tmp_path: Path) -> None:
    """Key-values, and a setting in its file."""
    file = tmp_path / "namesrv.properties"
    file.write_text("# ours\norderMessageEnable=false\n")
    for attempt in range(3):
        with running(tmp_path / "ns", "-c", str(file), end=signal.SIGKILL) as port:
            wanted = b"orderMessageEnable=%s" % (b"true" if attempt % 2 == 0 else b"false")
            assert ask(port, RequestCode.UPDATE_NAMESRV_CONFIG, wanted).code == 0
            for key in range(20):
                assert ask(port, RequestCode.PUT_KV_CONFIG, namespace="n", key=f"k{key}", value=f"{attempt}").code == 0
        assert file.read_bytes() == b"# ours\n%s\n" % wanted
        kept = json.loads((tmp_path / "ns" / "kvConfig.json").read_bytes())["configTable"]["n"]
        assert kept == {f"k{key}": f"{attempt}" for key in range(20)}


@pytest.mark.crash
def test_a_write_permission_that_was_removed_stays_so_after_kill_9(tmp_path: Path) -> None:
    names = {"clusterName": "c", "brokerName": "a", "brokerId": "0", "brokerAddr": "h:1", "haServerAddr": "h:2"}
    topics = {"t1": {"topicName": "t1", "perm": 6}, "t2": {"topicName": "t2", "perm": 6}}
    wrapper = {"dataVersion": {"counter": 1, "timestamp": 2}, "topicConfigTable": topics}
    body = json.dumps({"topicConfigSerializeWrapper": wrapper}).encode()
    registration = encode(RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=names, body=body, version=479))

    def permissions(*, wipes: bool) -> set[int]:
        with (
            running(tmp_path / "ns", end=signal.SIGKILL) as port,
            socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as broker,
        ):
            broker.sendall(registration)
            assert broker.recv(65536)
            if wipes:
                order = ask(port, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="a")
                assert order.ext_fields == {"wipeTopicCount": "2"}
            asked = {"topic": "t1", "acceptStandardJsonOnly": "true"}
            found = json.loads(bytes(ask(port, RequestCode.GET_ROUTEINFO_BY_TOPIC, **asked).body))
        return {queue["perm"] for queue in found["queueDatas"]}

    assert [permissions(wipes=wipes) for wipes in (True, False, False)] == [{4}, {4}, {4}]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT], ids=lambda one: one.name)
def test_a_name_server_stops_in_order(tmp_path: Path, number: signal.Signals) -> None:
    arguments = [*COMMAND, "--port", "0", "--directory", str(tmp_path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline().startswith("ready:")
        process.send_signal(number)
        _out, err = process.communicate(timeout=SECONDS)
        assert (process.returncode, "Traceback" in err) == (0, False)


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = refused("--port", str(port))
    assert ran.returncode == 4
    assert ran.stderr.count("\n") == 1 and ran.stderr.startswith("slipstream: START_REFUSED: ")
    assert str(port) in ran.stderr and "in use" in ran.stderr


def test_detached_it_serves_when_the_command_returns_or_says_why_not(tmp_path: Path) -> None:
    log, pid_file = tmp_path / "log", tmp_path / "pid"
    detached = ["--detach", "--log-file", str(log), "--pid-file", str(pid_file)]
    ran = refused("--port", "0", "--directory", str(tmp_path), *detached)
    assert ran.returncode == 0 and ran.stdout.startswith("ready: name server on 127.0.0.1:"), ran.stderr
    pid = int(pid_file.read_text())
    try:
        port = ran.stdout.split("127.0.0.1:")[1].split(",")[0]
        assert ask(int(port), RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
        second = refused("--port", port, *detached)
        assert (second.returncode, second.stdout, second.stderr.count("\n")) == (4, "", 1)
        assert second.stderr.startswith("slipstream: START_REFUSED: ") and int(pid_file.read_text()) == pid
    finally:
        os.kill(pid, signal.SIGTERM)
        await_that(lambda: start_time(pid) is None, "it has ended")
    assert log.read_text().startswith("ready: ") and log.stat().st_mode & 0o077 == 0
    assert "need --detach" in refused("--log-file", str(log)).stderr


def test_without_standard_descriptors_it_serves(tmp_path: Path, free_port: Callable[[], int]) -> None:
    port = free_port()
    words = " ".join([*COMMAND, "--port", str(port), "--directory", str(tmp_path)])
    with subprocess.Popen(["sh", "-c", f"exec {words} <&- >&- 2>&-"]) as process:
        try:
            while True:
                try:
                    assert ask(port, RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
                    break
                except ConnectionRefusedError:
                    assert process.poll() is None
            assert [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in range(3)] == ["/dev/null"] * 3
        finally:
            process.terminate()
            assert process.wait(SECONDS) == 0
