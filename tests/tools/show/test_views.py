"""What `status` and `counters` show of a running broker, for people and for programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from rich.console import Console

from engine.board.cursors import Board
from engine.figures.ha_status import ClientStatus, ConnectionStatus
from engine.figures.status import Status, snapshot
from engine.producer import Producer
from store.reading import extent
from tools import cli
from tools.common.local_broker import LocalBroker
from tools.show import status as status_view
from tools.show.counters import Lines


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("views"), mappedFileSizeCommitLog=1 << 20) as one:
        with Producer(one.store) as producer:
            producer.send("t", b"one message")
        yield one


def test_counters_as_json(broker: LocalBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["counters", "--json", str(broker.store)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {counter.label for counter in Board.every()} <= set(found)
    assert found["put_messages"] == {"kind": "tally", "owner": "writer", "value": 1}
    assert found["pid.writer"]["value"] > 0


def test_counters_for_people(broker: LocalBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["counters", str(broker.store)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["put_messages", "tally", "writer", "1"] in lines


def test_status_as_json(broker: LocalBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["status", "--json", str(broker.store)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["role"], found["state"], found["connections"]) == ("ASYNC_MASTER", "RUNNING", [])
    assert found["cursors"]["put_messages"] == 1
    assert {"supervisor", "writer", "flusher"} <= {process["role"] for process in found["processes"]}


def test_status_for_people(broker: LocalBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["status", str(broker.store)]) == 0
    out = capsys.readouterr().out
    assert "ASYNC_MASTER  ASYNC_FLUSH  RUNNING" in out
    assert "no slave is connected" in out
    assert "history from offset 0 on" in out


def rendered(status: Status) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(status_view.render(status))
    return capture.get()


def test_a_slave_shows_its_lag_in_bytes_and_seconds() -> None:
    slave = ConnectionStatus(
        slot=0, peer="127.0.0.1:5000", state="TRANSFER", slave_request_offset=0, next_transfer_offset=9_000,
        slave_ack_offset=4_000, lag_bytes=6_000, lag_seconds=2.5, transferred_bytes=9_000, acks_rejected=1,
        connected_seconds=60.0, silent_seconds=0.1,
    )  # fmt: skip
    status = Status(
        store="/s", broker_name="a", role="SYNC_MASTER", flush_disk_type="SYNC_FLUSH", state="RUNNING", pid=1,
        ha_listen_port=2, cursors={"max_physical_offset": 10_000, "flushed_offset": 9_500}, connections=[slave],
    )  # fmt: skip
    lines = [line.split() for line in rendered(status).splitlines()]
    assert ["flushed_offset", "9,500", "500"] in lines
    assert ["slave", "127.0.0.1:5000"] in lines
    assert ["acknowledged", "up", "to", "4,000"] in lines
    assert ["lag", "in", "bytes", "6,000"] in lines
    assert ["lag", "in", "time", "2.5", "s"] in lines


def test_a_slave_shows_its_master() -> None:
    status = Status(
        store="/s", broker_name="a", role="SLAVE", flush_disk_type="ASYNC_FLUSH", state="RUNNING", pid=1,
        ha_listen_port=2, cursors={"max_physical_offset": 0},
        client=ClientStatus("READY", "127.0.0.1:10912", 0, None, 30),
    )  # fmt: skip
    lines = [line.split() for line in rendered(status).splitlines()]
    assert ["127.0.0.1:10912", "READY", "0", "-", "CONNECT_FAILED"] in lines


def test_several_brokers_fit_a_small_terminal(broker: LocalBroker) -> None:
    status = snapshot(broker.store, cpu_sample_seconds=0.0)
    console = Console(width=80)
    with console.capture() as capture:
        console.print(status_view.side_by_side([status, status]))
    lines = [line.split() for line in capture.get().splitlines()]
    assert ["put_messages", "1", "1"] in lines
    assert ["slaves", "connected", "0", "0"] in lines
    assert len(lines) < 24


SHOWN = (["status"], ["stats"], ["counters"], ["ha", "status"])
CONTROL = b"\x1b"


@pytest.mark.parametrize("command", [*SHOWN, ["ha", "explain"], ["log", "stat"], ["log", "map"]], ids=" ".join)
def test_json_is_asked_for_in_either_way(
    command: list[str], broker: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for spelling in (["--json"], ["-o", "json"], ["--output", "json"]):
        assert cli.run_command([*command, *spelling, str(broker.store)]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0].keys() == found[1].keys() == found[2].keys()
    assert cli.run_command([*command, "-o", "table", str(broker.store)]) == 0
    assert not capsys.readouterr().out.startswith("{")
    assert cli.run_command([*command, "--json", "-o", "table", str(broker.store)]) == 2


Watching = dict[tuple[str, bool], "subprocess.Popen[bytes]"]


@pytest.fixture(scope="module")
def watching(broker: LocalBroker) -> Iterator[Watching]:
    """All views at once, with and without JSON: what they cost is waiting for their seconds."""
    environment = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    with ExitStack() as stack:
        begun: Watching = {}
        for command in SHOWN:
            for as_json in (False, True):
                form = ["--json"] if as_json else []
                words = [sys.executable, "-m", "tools.cli", *command, "--watch", *form, str(broker.store)]
                process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
                begun[" ".join(command), as_json] = stack.enter_context(process)
                stack.callback(process.kill)
        yield begun


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("command", SHOWN, ids=" ".join)
def test_watched_into_a_pipe_it_is_a_plain_block_a_second(
    command: list[str], as_json: bool, watching: Watching
) -> None:
    process = watching[" ".join(command), as_json]
    assert process.stdout is not None
    first = process.stdout.readline()
    blocks, read = [first], [first]
    while len(blocks) < 3:  # the first line of a view stands in each of its blocks
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        read.append(line)
        if line[:12] == first[:12]:
            blocks.append(line)
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err.startswith(b"slipstream: INTERRUPTED: ") and err.count(b"\n") == 1
    assert not any(CONTROL in line for line in read)
    if as_json:
        assert all(isinstance(json.loads(line), dict) for line in blocks)


def test_watched_counters_cost_next_to_nothing(broker: LocalBroker) -> None:
    """CPU, not time: 100 rounds of the view may take no more than 1 % of 100 seconds."""
    found = extent.require_running(broker.store).counters()
    lines = Lines(found)
    began = time.process_time()
    for _ in range(100):
        extent.require_running(broker.store)
        "\n".join(lines.now())
    assert time.process_time() - began < 1.0
    labels = [line.split()[0] for line in lines.now()[1:]]
    assert labels == [view.label for view in found]
    found.close()


def test_a_watched_broker_that_ends_is_told(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "ends", mappedFileSizeCommitLog=1 << 20) as one:
        words = [sys.executable, "-m", "tools.cli", "counters", "--watch", str(one.store)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline()
            one.stop()
            _out, err = process.communicate(timeout=60)
    assert process.returncode == 3 and err.startswith(b"slipstream: NO_BROKER: ") and err.count(b"\n") == 1
