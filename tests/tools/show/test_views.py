"""What `status` and `counters` show of a running broker, for people and for programs."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from engine.monitoring.ha_status import ClientStatus, ConnectionStatus
from engine.monitoring.status import ProcessStatus, Status, snapshot
from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tools import cli
from tools.common.local_broker import LocalBroker
from tools.show import status as status_view
from tools.show.counters import Lines


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("views"), mappedFileSizeCommitLog=1 << 20) as one:
        with Producer(one.store, timeout=60.0) as producer:
            producer.send("t", b"one message")
        yield one


def test_counters_as_json(broker: LocalBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["counters", "--json", str(broker.store)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {counter.label for counter in BrokerCounters.every()} <= set(found)
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
    assert [front["front"] for front in found["fronts"]] == ["front.0"]
    assert found["services"].keys() == {"delay", "transactions"}


def test_status_for_people(broker: LocalBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["status", str(broker.store)]) == 0
    out = capsys.readouterr().out
    assert "ASYNC_MASTER  ASYNC_FLUSH  RUNNING" in out
    assert "no slave is connected" in out
    assert "history from offset 0 on" in out
    assert "0 pulls held" in out and "delay: nothing yet" in out
    assert "min_physical_offset" not in out, "raw values are shown by `counters`"


def lines_of(status: Status, width: int = 80) -> list[str]:
    console = Console(width=1000)
    with console.capture() as capture:
        console.print(status_view.render(status, width))
    lines = capture.get().splitlines()
    assert max(map(cell_len, lines)) <= width, max(lines, key=cell_len)
    return lines


def status_of(role: str = "SYNC_MASTER", **given: Any) -> Status:
    cursors = {"max_physical_offset": 10_000, "flushed_offset": 9_500}
    return Status(
        store="/s",
        broker_name="a",
        role=role,
        flush_disk_type="SYNC_FLUSH",
        state="RUNNING",
        pid=1,
        ha_listen_port=2,
        cursors=cursors,
        **given,
    )


def connection(slot: int = 0, **given: Any) -> ConnectionStatus:
    usual = {
        "slot": slot,
        "peer": f"127.0.0.1:{5000 + slot}",
        "state": "TRANSFER",
        "slave_request_offset": 0,
        "next_transfer_offset": 9_000,
        "slave_ack_offset": 4_000,
        "lag_bytes": 6_000,
        "lag_seconds": 2.5,
        "transferred_bytes": 9_000,
        "acks_rejected": 1,
        "connected_seconds": 60.0,
        "silent_seconds": 0.1,
    }
    return ConnectionStatus(**{**usual, **given})


def test_a_slave_shows_its_lag_in_bytes_and_seconds() -> None:
    lines = lines_of(status_of(connections=[connection()]))
    assert ["127.0.0.1:5000", "OK", "5.9", "KiB", "2.5", "s", "0.1", "s", "-"] in [line.split() for line in lines]
    assert "log   9.8 KiB; not flushed 500 B" in lines


def test_a_slave_shows_its_master() -> None:
    client = ClientStatus("READY", "127.0.0.1:10912", 0, None, 30, "UNREACHABLE")
    lines = lines_of(status_of("SLAVE", client=client))
    assert "from  127.0.0.1:10912 READY UNREACHABLE, silent -, receives -" in lines
    assert not any("confirmed" in line or "no slave" in line for line in lines), "of a master alone"


def process(number: int, **given: Any) -> ProcessStatus:
    return ProcessStatus(
        **{
            "role": f"front.{number}",
            "pid": 4_000_000 + number,
            "restarts": 0,
            "heartbeat_age_seconds": 0.1,
            "cpu_percent": 1.0,
            "rss_bytes": 1,
            "pss_bytes": 1,
            **given,
        }
    )


def test_what_is_wrong_comes_first_with_what_to_type() -> None:
    store = "/a/long/path" * 9
    found = [{"reason": "BEHIND", "what": "lacks " + "9" * 200, "next": f"`slipstream ha status {store}`"}] * 9
    status = dataclasses.replace(status_of(findings=found), store=store, broker_name="name\x1b[31m" * 20)
    lines = lines_of(status)
    assert all("\x1b" not in line for line in lines)
    assert [line[:6] for line in lines[2:7]] == ["BEHIND"] * 5
    assert all(line.endswith("…; next: `slipstream ha status STORE`") for line in lines[2:7])
    assert lines[7] == "and 4 more: --json / slipstream doctor STORE"
    assert lines_of(status_of())[2] == "OK  nothing is wrong"
    narrow = lines_of(status, 30)
    assert narrow[2].startswith("BEHIND")


def test_the_worst_of_many_are_shown_and_the_rest_is_counted() -> None:
    slaves = [connection(slot, lag_bytes=slot << 40) for slot in range(7)]
    slaves.append(connection(7, peer="[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65000", in_sync=False, reason="BEHIND"))
    processes = [process(number, restarts=number // 29) for number in range(29)]
    processes.append(process(29, state="STALLED"))
    lines = lines_of(status_of(connections=slaves, processes=processes))
    at = next(number for number, line in enumerate(lines) if line.startswith("replica"))
    assert "BEHIND" in lines[at + 1] and "6.0 TiB" in lines[at + 2]
    assert lines[at + 5] == "and 4 more: slipstream ha status STORE"
    assert lines[-1] == "and 14 more: --json"
    (first,) = [line for line in lines if "stalled" in line]
    assert "4000029" in first


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
    _out, err = process.communicate(timeout=300)
    assert process.returncode == 130 and err.startswith(b"slipstream: INTERRUPTED: ") and err.count(b"\n") == 1
    assert not any(CONTROL in line for line in read)
    if as_json:
        assert all(isinstance(json.loads(line), dict) for line in blocks)


def test_watched_counters_cost_next_to_nothing(broker: LocalBroker) -> None:
    """CPU, not time: a round of the view takes no more than 1 % of its second, but for what comes between."""
    found = extent.require_running(broker.store).counters()
    lines, costs = Lines(found), []
    for _ in range(100):
        began = time.thread_time()
        extent.require_running(broker.store)
        "\n".join(lines.now())
        costs.append(time.thread_time() - began)
    assert min(costs) < 0.01
    labels = [line.split()[0] for line in lines.now()[1:]]
    assert labels == [view.label for view in found]
    found.close()


def test_the_end_of_a_watched_broker_is_reported(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "ends", mappedFileSizeCommitLog=1 << 20) as one:
        words = [sys.executable, "-m", "tools.cli", "counters", "--watch", str(one.store)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline()
            one.stop()
            _out, err = process.communicate(timeout=300)
    assert process.returncode == 3 and err.startswith(b"slipstream: NO_BROKER: ") and err.count(b"\n") == 1
