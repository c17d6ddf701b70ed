"""`slipstream init`: what it writes is what a broker takes, and its service is told of the broker as systemd asks."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.settings.config import BrokerRole, load
from store.reading import extent
from tests.harness.service_manager import listening
from tools.cli import run_command
from tools.common.local_broker import free_port
from tools.run.init import SHOWN, unit_text
from tools.run.readiness import ServiceManager

SECONDS = 180.0


def unit_of(path: Path) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text())
    return unit


def words_of(line: str) -> list[str]:
    """A command line of a unit, as its words."""
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line)]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """What systemd listens at."""
    with listening(tmp_path / "notify", SECONDS) as manager:
        yield manager


def test_a_master_has_what_was_asked_for_and_the_rest_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "orders"
    assert run_command(["init", str(folder), "--role", "SYNC_MASTER", "--port", "20911", "-n", "127.0.0.1:9876"]) == 0
    config, warnings = load(str(folder / "broker.properties"))
    assert not warnings
    assert (config.broker_name, config.broker_role, config.broker_id) == ("orders", BrokerRole.SYNC_MASTER, 0)
    assert (config.listen_port, config.store_path_root_dir) == (20911, folder / "store")
    assert [path.name for path in sorted(folder.iterdir())] == ["broker.properties", "slipstream.service"]
    assert capsys.readouterr().out.splitlines()[-1] == f"next: slipstream broker -c {folder}/broker.properties"


def test_commented_settings_of_a_new_file_are_the_defaults(tmp_path: Path) -> None:
    assert run_command(["init", str(tmp_path / "a")]) == 0
    file, said = tmp_path / "a" / "broker.properties", tmp_path / "said.properties"
    config, _warnings = load(str(file))
    lines = re.sub(r"^#(\w+=.+)$", r"\1", file.read_text(), flags=re.MULTILINE)
    said.write_text(lines)
    assert lines.count("\n#") < file.read_text().count("\n#")
    assert load(str(said)) == (config, [])
    assert {name for _heading, names in SHOWN for name in names.split()} <= set(re.findall(r"^#?(\w+)=", lines, re.M))


def test_a_slave_needs_a_master_and_a_master_takes_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["init", str(tmp_path / "s"), "--role", "SLAVE"]) == 2
    assert "--master HOST:PORT" in capsys.readouterr().err
    assert run_command(["init", str(tmp_path / "m"), "--master", "127.0.0.1:10912"]) == 2
    assert run_command(["init", str(tmp_path / "m"), "--role", "SLAVE", "--master", "nowhere"]) == 2
    assert not list(tmp_path.iterdir()), "nothing is written of what is refused"
    arguments = ["--role", "SLAVE", "--name", "orders", "--master", "127.0.0.1:10912", "--id", "3"]
    assert run_command(["init", str(tmp_path / "s"), *arguments]) == 0
    config, warnings = load(str(tmp_path / "s" / "broker.properties"))
    assert (config.broker_id, config.ha_master_address, warnings) == (3, ("127.0.0.1", 10912), [])


@pytest.mark.parametrize(
    "name", ["two words", "100 %", "back\\slash", "ends\\", "tür", "木", "\N{FIRE}", "#1", "a=b:c", "it's"]
)
def test_a_folder_of_any_name(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["init", str(tmp_path / name), "--name", "orders"]) == 0
    file = tmp_path / name / "broker.properties"
    config, warnings = load(str(file))
    assert (config.store_path_root_dir, warnings) == (tmp_path / name / "store", [])
    assert shlex.split(capsys.readouterr().out.splitlines()[-1])[-1] == str(file)


@pytest.mark.parametrize("more", [["--user", "x\nExecStart=/bin/sh"], ["--user", ""], ["--name", "x\nbrokerId=7"]])
def test_no_line_is_added_by_a_name(tmp_path: Path, more: list[str]) -> None:
    assert run_command(["init", str(tmp_path / "a"), *more]) == 2
    assert run_command(["init", str(tmp_path / "a\nUser=root")]) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("there", ["broker.properties", "slipstream.service"])
def test_nothing_is_overwritten(tmp_path: Path, there: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / there).write_text("mine")
    assert run_command(["init", str(tmp_path)]) == 2
    assert f"{there} already exists" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(there, "mine")]


@pytest.mark.parametrize("name", ["plain", "two words", "100 %", "$HOME", 'a"b', "back\\slash", "it's"])
def test_a_unit_names_folders_of_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    path = tmp_path / "x.service"
    path.write_text(unit_text("orders", path.name, folder, folder / "broker.properties", "rocketmq"))
    service = unit_of(path)["Service"]
    assert words_of(service["ExecStart"])[-3:] == ["broker", "-c", str(folder / "broker.properties")]
    assert [word.replace("%%", "%") for word in words_of(service["ReadWritePaths"])] == [str(folder), "/dev/shm"]
    assert (service["User"], service["Type"]) == ("rocketmq", "notify")
    assert service["ExecReload"] == "/bin/sh -c 'kill -HUP $MAINPID'"


@pytest.mark.broker
def test_a_service_starts_by_its_own_command_and_notifies_the_manager(tmp_path: Path, manager: socket.socket) -> None:
    folder = tmp_path / "a broker"
    assert run_command(["init", str(folder), "--port", str(free_port()), "--name", "a"]) == 0
    with (folder / "broker.properties").open("a") as file:
        file.write(
            "brokerIP1=127.0.0.1\nbrokerIP2=127.0.0.1\nmetricsPromExporterPort=0\nmappedFileSizeCommitLog=1048576\n"
        )
    process = subprocess.Popen(
        words_of(unit_of(folder / "slipstream.service")["Service"]["ExecStart"]),
        cwd="/",
        env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "3000000"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        said: list[str] = []
        while len(said) < 4 or not any(line.startswith("READY=1") for line in said):  # a slow start is a beat a second
            said.append(manager.recv(4096).decode())
        (ready,) = [line for line in said if line.startswith("READY=1\nSTATUS=ASYNC_MASTER a, store ")]
        assert set(said) - {ready} == {"WATCHDOG=1"}
        assert extent.require_running(folder / "store").pid == process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        _out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err


def test_an_unwatched_broker_notifies_nobody(tmp_path: Path, manager: socket.socket) -> None:
    address = str(tmp_path / "notify")
    ServiceManager({}).ready("nobody hears it")
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).ready("nobody hears it")
    another = ServiceManager({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"})
    another.beat()
    another.ready("two\nlines")
    assert manager.recv(100) == b"READY=1\nSTATUS=two lines"


def test_a_socket_without_a_file_and_one_that_nobody_reads() -> None:
    name = f"slipstream-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("\0" + name)
        told = ServiceManager({"NOTIFY_SOCKET": "@" + name, "WATCHDOG_USEC": "3"})
        for _ in range(10_000):  # more than it holds: nobody waits
            told.beat()
        assert listening.recv(100) == b"WATCHDOG=1"
    told.ready("nobody is there any more")


def test_without_a_script_the_module_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    path = tmp_path / "x.service"
    path.write_text(unit_text("orders", path.name, tmp_path, tmp_path / "broker.properties", ""))
    service = unit_of(path)["Service"]
    words = words_of(service["ExecStart"])
    assert words[: words.index("broker")][-3:] == [str(tmp_path / "python"), "-m", "tools.cli"]
    assert "User" not in service
