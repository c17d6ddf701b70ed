"""`slipstream ha` of a running master and its slave, for people and as JSON: what it says, and that it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from engine.monitoring.ha_status import ClientStatus, ConnectionStatus, EndedStatus, HaStatus, ha_status
from engine.producer import Producer
from engine.protocol.ha.wire import ADVICE, CODES, CloseReason
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.harness.ha_node import wait_for, wait_until
from tests.harness.terminal import in_terminal, text_of
from tools import cli
from tools.common.exit_codes import ExitCode
from tools.common.local_broker import LocalBroker
from tools.show.ha_tables import bytes_text, seconds_text, status_view

SMALL = {"mappedFileSizeCommitLog": 1 << 20, "slaveTimeout": 120_000, "haHousekeepingInterval": 120_000}
MASTER = {**SMALL, "brokerRole": "SYNC_MASTER", "compat": "5"}
LINES_MAX = 100  # one a second


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalBroker, LocalBroker]]:
    directory = tmp_path_factory.mktemp("ha")
    with LocalBroker(directory / "m", **MASTER) as master:
        keys = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address}
        with LocalBroker(directory / "s", **SMALL, **keys) as slave:
            wait_until(counters_of(master).in_sync_slaves, lambda count: count == 1)
            with Producer(master.store, timeout=60.0) as producer:
                producer.send("t", b"one message", timeout=120)
            yield master, slave


def counters_of(broker: LocalBroker) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)


def output_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert cli.run_command([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def test_every_reason_has_a_code_and_advice() -> None:
    assert set(CODES) == set(ADVICE) == set(CloseReason)


def test_status_of_a_master(pair: tuple[LocalBroker, LocalBroker], capsys: pytest.CaptureFixture[str]) -> None:
    master, _slave = pair
    wait_for(counters_of(master).ha[0].slave_ack_offset, counters_of(master).max_physical_offset.read())
    found = json.loads(output_of(capsys, "ha", "status", "-o", "json", master.store))
    (replica,) = found["replicas"]
    assert (replica["state"], replica["reason"], replica["in_sync"]) == ("TRANSFER", "OK", True)
    assert (replica["lag_bytes"], replica["lag_seconds"], replica["catch_up_seconds"]) == (0, 0.0, 0.0)
    assert (found["replicas_needed"], found["acks_rejected"], found["client"]) == (2, 0, None)
    assert found["push2_slave_max_offset"] == found["max_physical_offset"] > 0
    out = output_of(capsys, "ha", "status", master.store)
    assert "1 slave(s) in sync, a put waits for 1; 0 acks rejected" in out
    assert ["lag", "in", "bytes", "0"] in [line.split() for line in out.splitlines()]


def test_status_of_a_slave(pair: tuple[LocalBroker, LocalBroker], capsys: pytest.CaptureFixture[str]) -> None:
    master, slave = pair
    found = json.loads(output_of(capsys, "ha", "status", "-o", "json", slave.store))
    assert (found["client"]["state"], found["client"]["reason_code"]) == ("TRANSFER", "OK")
    assert found["client"]["master"] == master.ha_address
    assert found["replicas"] == []


def test_status_of_all_brokers_says_the_same(pair: tuple[LocalBroker, LocalBroker]) -> None:
    (replica,) = ha_status(pair[0].store).replicas
    assert replica.peer.startswith("127.0.0.1:")
    assert replica.silent_seconds >= 0.0


@pytest.mark.parametrize("number", [0, 1], ids=["master", "slave"])
def test_status_of_a_pair_fits_a_terminal(pair: tuple[LocalBroker, LocalBroker], number: int) -> None:
    code, out = in_terminal([sys.executable, "-m", "tools.cli", "status", str(pair[number].store)], 80, 24)
    lines = text_of(out).splitlines()
    assert code == 0 and len(lines) < 24, "the prompt has a line, too"
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[:2] == [pair[number].store.parent.name, ("SYNC_MASTER", "SLAVE")[number]]
    assert any("127.0.0.1:" in line and "OK" in line for line in lines), "the other one"
    assert any(line.startswith("supervisor") for line in lines)


def test_watch_goes_on_until_it_is_interrupted(pair: tuple[LocalBroker, LocalBroker]) -> None:
    command = [sys.executable, "-m", "tools.cli", "ha", "status", "--watch", "-o", "json", str(pair[0].store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as watching:
        assert watching.stdout is not None
        rates: list[float | None] = []
        while len(rates) < 3 or (rates[-1] is None and len(rates) < LINES_MAX):  # there are samples after two seconds
            (replica,) = json.loads(watching.stdout.readline())["replicas"]
            rates.append(replica["acked_bytes_per_second"])
        watching.send_signal(signal.SIGINT)
        assert watching.wait(120) == ExitCode.INTERRUPTED
    assert rates[-1] is not None


def test_explain_of_a_running_broker(pair: tuple[LocalBroker, LocalBroker], capsys: pytest.CaptureFixture[str]) -> None:
    out = output_of(capsys, "ha", "explain", pair[0].store)
    assert "SYNC_MASTER, ASYNC_FLUSH, compat 5" in out
    assert "now: 1 slave(s) in sync: a put waits for one slave now" in out
    found = json.loads(output_of(capsys, "ha", "explain", "-o", "json", pair[0].store))
    assert "FLUSH_SLAVE_TIMEOUT" in found["answers"]


def test_explain_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broker.properties"
    file.write_text("brokerRole=SYNC_MASTER\ncompat=5\ninSyncReplicas=1\n")
    out = output_of(capsys, "ha", "explain", file)
    assert "this SYNC_MASTER acknowledges as an ASYNC_MASTER does" in out
    assert "now:" not in out


def test_without_a_broker_there_is_one_line_and_a_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("status", "explain"):
        assert cli.run_command(["ha", command, str(tmp_path)]) == ExitCode.NO_BROKER
        assert capsys.readouterr().err.startswith("slipstream: NO_BROKER: ")


def rendered(status: HaStatus) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(status_view(status))
    return capture.get()


def test_what_keeps_replicas_back_is_shown() -> None:
    slow = ConnectionStatus(
        slot=0,
        peer="10.0.0.2:5000",
        state="TRANSFER",
        slave_request_offset=0,
        next_transfer_offset=9_000,
        slave_ack_offset=4_000,
        lag_bytes=6_000,
        lag_seconds=2.5,
        transferred_bytes=9_000,
        acks_rejected=1,
        connected_seconds=60.0,
        silent_seconds=0.1,
        reason="BEHIND",
        in_sync=False,
        acked_bytes_per_second=3 << 20,
    )
    gone = EndedStatus("10.0.0.3:6000", "DIVERGED", "REQUEST_ABOVE_END", "compare both logs", 77, 3.0)
    client = ClientStatus("READY", "-", 0, None, 31, "NO_LISTENER", "is the master running")
    status = HaStatus(
        "/s",
        "c",
        "a",
        "SYNC_MASTER",
        "5",
        "RUNNING",
        10_000,
        0,
        4_000,
        0,
        2,
        7,
        [slow],
        [gone],
        {"REQUEST_ABOVE_END": 3},
        client,
        {"NO_LISTENER": 12},
    )
    out = rendered(status)
    lines = [line.split() for line in out.splitlines()]
    for line in (
        ["reason", "BEHIND"], ["in", "sync", "no"], ["time", "to", "catch", "up", "never", "at", "this", "rate"],
        ["acknowledges", "3.0", "MiB/s"], ["acks", "rejected", "1"], ["reason", "NO_LISTENER"],
    ):  # fmt: skip
        assert line in lines, line
    assert "10.0.0.3:6000  DIVERGED  REQUEST_ABOVE_END 3.0 s ago: compare both logs" in out
    assert "connections of slaves ended: 3 REQUEST_ABOVE_END (DIVERGED)" in out
    assert "12 NO_LISTENER (NO_LISTENER)" in out


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0.0 s"), (59.94, "59.9 s"), (61, "1 min 1 s"), (3700, "1 h 1 min"), (90_000, "1 d 1 h")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes(count: float | None, text: str) -> None:
    assert bytes_text(count) == text
