"""What `status` and `counters` show of a running broker, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from rich.console import Console

from engine.cursors import COMMON
from engine.ha_status import ClientStatus, ConnectionStatus
from engine.producer import Producer
from engine.status import Status, snapshot
from tools import cli, status_view
from tools.local_broker import LocalBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("views"), mappedFileSizeCommitLog=1 << 20) as one:
        with Producer(one.store) as producer:
            producer.send("t", b"one message")
        yield one


def test_counters_as_json(broker: LocalBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["counters", "--json", str(broker.store)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {label for label, _kind, _owner in COMMON} <= set(found)
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
