"""What the supervisor gives the processes that it forks."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.settings.config import from_mapping
from engine.settings.cpus import PROMPT_NS, attributes_of
from engine.shared_memory.cursors import BrokerCounters, Serving
from engine.supervisor import YIELDING_NICENESS, Supervisor
from ipc import waiting
from store.files.directory import StoreDirectory
from store.reading import extent
from tests.harness.conditions import await_that
from tests.harness.small_disk import SmallDisk
from tools.common.local_broker import LocalBroker


@pytest.mark.parametrize(("role", "yields"), [("SLAVE", {"dispatcher"}), ("ASYNC_MASTER", set())])
def test_a_slave_has_its_masters_bytes_before_it_builds_queues(tmp_path: Path, role: str, yields: set[str]) -> None:
    own = psutil.Process().nice()
    with LocalBroker(tmp_path / "broker", brokerRole=role, brokerId=int(role == "SLAVE")) as broker:
        counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory)
        pids = {name: word.read() for name, word in counters.pids.items()}
        processes = {name: psutil.Process(pid) for name, pid in pids.items() if pid}
        assert "dispatcher" in processes and len(processes) > 5
        expected = {name: min(19, own + YIELDING_NICENESS) if name in yields else own for name in processes}
        await_that(lambda: {name: one.nice() for name, one in processes.items()} == expected, "each has made its own")


def test_one_role_runs_alone_and_moves_its_own_counters_only(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "broker", only=("flusher",)) as broker:
        counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory)
        pids = {name for name, word in counters.pids.items() if word.read()}
        end = counters.max_physical_offset.read()
    assert (pids, end) == ({"flusher"}, 0)
    assert broker.process.returncode == 0, broker.log.read_text()


class Deaths:
    """Children of whom `dead` died again and again."""

    def __init__(self) -> None:
        self.dead: list[tuple[str, str]] = []

    def failed(self, _times: int) -> list[tuple[str, str]]:
        return self.dead

    def have_turned(self) -> bool:
        return True


def starting(directory: Path, *only: str) -> tuple[Any, BrokerCounters, Deaths]:
    """A supervisor that waits for two fronts."""
    config = from_mapping({"storePathRootDir": directory, "brokerIP1": "127.0.0.1", "frontProcesses": 2})
    made: Any = Supervisor(config, StoreDirectory(directory), only)
    made._counters, made._children = BrokerCounters.create(directory / "counters"), Deaths()
    return made, made._counters, made._children


def test_fronts_and_writer_run_before_roles_that_nobody_waits_for(tmp_path: Path) -> None:
    usual_ns = attributes_of(0).sched_runtime
    prompt_ns = PROMPT_NS if usual_ns else 0  # an older kernel knows no such wish
    expected = {"writer": prompt_ns, "front.0": prompt_ns, "dispatcher": usual_ns}
    with LocalBroker(tmp_path / "broker") as broker:
        pids = BrokerCounters.attach(extent.require_running(broker.store).region_directory).pids
        await_that(
            lambda: {role: attributes_of(pids[role].read()).sched_runtime for role in expected} == expected, "asked for"
        )


def test_a_broker_is_ready_once_all_fronts_serve_at_both_ports(tmp_path: Path) -> None:
    supervisor, counters, _deaths = starting(tmp_path)
    waiting.publish(counters.listen_port, 10911)
    for number in (1, 0):
        for serving in (Serving.NOTHING, Serving.PORTS):
            waiting.publish(counters.fronts[number].serving, serving)
            assert supervisor._are_roles_on_their_way(), (number, serving)
        waiting.publish(counters.fronts[number].serving, Serving.ALL)
    assert not supervisor._are_roles_on_their_way()


def test_nobody_is_waited_for_who_will_not_come(tmp_path: Path) -> None:
    supervisor, counters, deaths = starting(tmp_path)
    deaths.dead = [("clients", "CONFIG: damaged")]
    assert not supervisor._are_roles_on_their_way(), "it dies again and again"
    deaths.dead = []
    for words in counters.fronts[:2]:
        assert supervisor._are_roles_on_their_way()
        waiting.publish(words.listen_errno, errno.EADDRINUSE)
    assert not supervisor._are_roles_on_their_way(), "another program has the port: the log goes on"
    (tmp_path / "alone").mkdir()
    supervisor, counters, _deaths = starting(tmp_path / "alone", "front.1", "ha_listener")
    waiting.publish(counters.fronts[1].serving, Serving.PORTS)
    assert not supervisor._are_roles_on_their_way(), "nobody tells it of topics"


def test_a_broker_that_lacks_shared_memory_is_not_ready_and_says_why(tmp_path: Path) -> None:
    """Its regions have room, the rings of its fronts and services have none."""
    keys = {"ringSizeInBytes": 128 << 20, "maxProducers": 1}
    with SmallDisk(tmp_path / "disk", 96 << 20, "tmpfs") as disk:
        broker = LocalBroker(tmp_path / "broker", inside=disk.inside, regionPath=disk.directory, **keys)
        try:
            assert broker.process.wait(180) == 4
        finally:
            broker.stop()
    said = broker.log.read_text()
    assert "ready:" not in said
    assert re.search(r"slipstream: START_REFUSED: (front.0|delay|transactions): REGION_NO_SPACE: .*regionPath", said)


def test_an_unknown_role_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    properties = tmp_path / "broker.properties"
    properties.write_text(f"storePathRootDir={tmp_path / 'store'}\nbrokerIP1=127.0.0.1\n")
    command = [sys.executable, "-m", "tools.cli", "broker", "-c", str(properties), "--only", "receiver"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (ended.returncode, ended.stdout) == (4, "")
    line = ended.stderr.splitlines()[-1]
    why = "brokerRole=ASYNC_MASTER has no such role"
    assert line.startswith(f"slipstream: START_REFUSED: --only receiver: {why}; ")
    names = line.rpartition(": ")[2].split(", ")
    assert {"group_transfer", "writer", "clients", "front.0", "ha_listener"} <= set(names) and "receiver" not in names
