"""`broker --detach`, `wait` and `stop`: they return when it is so, or say why it is not."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipc.process import boot_id, namespace, start_time
from store.names import STARTING
from store.notes import starting
from store.reading.extent import running
from tests.harness.command_line import run
from tests.harness.conditions import await_that
from tools.common.exit_codes import ExitCode
from tools.common.local_broker import free_port
from tools.run import serving

PATIENTLY = ("--timeout", "3000")  # a first start compiles


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """A broker's file; whatever runs on its store at the end is stopped."""
    store = tmp_path / "store"
    written = tmp_path / "broker.properties"
    written.write_text(
        f"brokerIP1=127.0.0.1\nlistenPort={free_port()}\nstorePathRootDir={store}\nmappedFileSizeCommitLog=1048576\n"
        "metricsPromExporterPort=0\nringSizeInBytes=1048576\nmaxMessageSize=65536\ndiskSpaceWarningLevelRatio=100\n"
    )
    yield written
    if running(store) is not None:
        assert run("stop", store, *PATIENTLY).exit_code == 0


def test_a_detached_broker_serves_when_the_command_returns_and_a_second_one_says_why_not(file: Path) -> None:
    store = file.parent / "store"
    ran = run("broker", "-c", file, "--detach", *PATIENTLY)
    assert ran.exit_code == 0 and ran.stdout.startswith(f"ready: store {store}, process "), ran.output
    assert run("wait", store, "--timeout", "0").exit_code == 0
    assert run("wait", "--for", "well", store, "--timeout", "0").exit_code == 0
    again = run("broker", "-c", file, "--detach", *PATIENTLY)
    assert again.exit_code == ExitCode.STORE and again.stderr.startswith("slipstream: STORE_LOCKED: "), again.output
    assert "ready:" in (file.parent / "broker.log").read_text(), "its output is kept"
    stopped = run("stop", store)
    assert stopped.exit_code == 0 and running(store) is None, stopped.output
    assert run("stop", store).exit_code == ExitCode.NO_BROKER
    assert not (store / STARTING).exists()


def test_a_start_that_fails_is_not_waited_for(file: Path) -> None:
    file.write_text(file.read_text() + "flushDiskType=NEVER\n")
    ran = run("broker", "-c", file, "--detach", *PATIENTLY)
    assert ran.exit_code == ExitCode.USAGE and "flushDiskType" in ran.stderr
    assert run("broker", "-c", file, "--log-file", file.parent / "out").exit_code == ExitCode.USAGE


def test_a_port_that_another_program_has_is_said(file: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))  # the HA port, the next one, is free
        taken.listen()
        file.write_text(file.read_text() + f"bindAddress=127.0.0.1\nlistenPort={taken.getsockname()[1]}\n")
        ran = run("broker", "-c", file, "--detach", *PATIENTLY)
        assert ran.exit_code == ExitCode.FOUND and ran.stderr.startswith("slipstream: NO_LISTENER: "), ran.output
        assert run("wait", file.parent / "store").exit_code == ExitCode.FOUND


def test_a_wait_in_vain_says_what_is_missing(file: Path) -> None:
    store = file.parent / "store"
    for there in (False, True):  # wait is typed before the store is made, too
        if there:
            store.mkdir()
        ran = run("wait", store, "--timeout", "0")
        assert ran.exit_code == ExitCode.NO_BROKER and "no broker serves within 0 s" in ran.stderr
    file.write_text(file.read_text() + "brokerRole=SYNC_MASTER\n")
    assert run("broker", "-c", file, "--detach", *PATIENTLY).exit_code == 0
    ran = run("wait", "--for", "well", store, "--timeout", "0")
    assert ran.exit_code == ExitCode.FOUND and "NOT_IN_TIME" in ran.stderr and "0 slaves in sync" in ran.stderr


def test_during_a_start_status_says_so_and_what_is_done(tmp_path: Path) -> None:
    pid = os.getppid()
    said = {"pid": pid, "start_time": start_time(pid), "boot_id": boot_id(), "namespace": namespace()}
    said["what"] = "34 of 326"
    (tmp_path / STARTING).write_text(json.dumps(said))
    for words in (("status",), ("ha", "status"), ("wait", "--timeout", "0")):
        ran = run(*words, tmp_path)
        assert ran.exit_code == ExitCode.NO_BROKER, ran.output
        assert ran.stderr.startswith(f"slipstream: STARTING: {tmp_path}: process {pid} is starting a broker: 34 of 326")
    (tmp_path / STARTING).write_text(json.dumps({**said, "start_time": 1}))
    assert starting.read(tmp_path) is None, "of a process that has ended"
    for content in (b"", b"{", b"[]", b'{"pid": "x"}', b"\xff" * 5000):
        (tmp_path / STARTING).write_bytes(content)
        assert starting.read(tmp_path) is None
        assert "NO_BROKER" in run("status", tmp_path).stderr


def test_a_broker_that_starts_leaves_a_note_until_it_serves(file: Path) -> None:
    store, seen = file.parent / "store", []

    looked_at = serving._looked_at

    def looked(path: str, pid: int) -> object:
        seen.append(starting.read(store))
        return looked_at(path, pid)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "_looked_at", looked)
        assert run("broker", "-c", file, "--detach", *PATIENTLY).exit_code == 0
    assert any(note is not None and note.what for note in seen)
    await_that(lambda: starting.read(store) is None, "the start is over")
