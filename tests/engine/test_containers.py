"""A broker and its readers in PID namespaces of their own, with a /dev/shm of their own, or both, as in containers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.producer import Producer
from store.errors import BrokerOutOfReach
from store.reading import extent
from store.upkeep import leases
from tests.harness import containers
from tests.harness.conditions import await_that
from tests.harness.containers import OWN_BOTH, OWN_MEMORY, OWN_PIDS, python
from tools.common.local_broker import LocalBroker

WHY_NOT = containers.missing()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))

LOOK = """
import json, logging, sys
from store.reading import extent
broker = extent.running(sys.argv[1])
found = extent.readable_range(sys.argv[1])
found = extent.readable_range(sys.argv[1])
print(json.dumps([broker is not None, found.source, found.max_physical_offset]))
"""
PUT = """
import sys
from engine.producer import Producer
with Producer(sys.argv[1], timeout=60) as producer:
    print(producer.send("t", b"from inside").status.name)
"""
HOLD = """
import sys
from store.upkeep import leases
leases.acquire(sys.argv[1], 5, 10**9)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker with regions in /dev/shm and a message."""
    with LocalBroker(tmp_path_factory.mktemp("broker"), mappedFileSizeCommitLog=1 << 20) as running:
        with Producer(str(running.store), timeout=60) as producer:
            producer.send("t", b"first")
        yield running


@pytest.mark.parametrize("inside", [OWN_PIDS, OWN_MEMORY, OWN_BOTH], ids=["pids", "memory", "both"])
def test_a_reader_in_a_container(broker: LocalBroker, inside: list[str]) -> None:
    ran = python(inside, LOOK, broker.store)
    assert ran.returncode == 0, ran.stderr
    is_reached = inside is OWN_PIDS
    end = extent.readable_range(broker.store).max_physical_offset
    assert json.loads(ran.stdout) == [True, "broker" if is_reached else "recovery", end]
    told = [line for line in ran.stderr.splitlines() if "cannot be reached from here" in line]
    assert len(told) == (0 if is_reached else 1), ran.stderr
    assert is_reached or ("/dev/shm" in told[0] and "regionPath" in told[0])


@pytest.mark.parametrize("inside", [OWN_PIDS, OWN_BOTH], ids=["pids", "both"])
def test_a_producer_in_a_container(broker: LocalBroker, inside: list[str]) -> None:
    ran = python(inside, PUT, broker.store)
    if inside is OWN_PIDS:
        assert ran.stdout == "PUT_OK\n", ran.stderr
    else:
        assert "BrokerOutOfReach" in ran.stderr and "/dev/shm" in ran.stderr


def test_commands_in_a_container_say_what_to_mount(broker: LocalBroker) -> None:
    for command in (["status"], ["counters"], ["log", "verify"], ["ha", "status"]):
        asked = [*OWN_BOTH, sys.executable, "-m", "tools.cli", *command, str(broker.store)]
        ran = subprocess.run(asked, check=False, capture_output=True, text=True, cwd=containers.ROOT)
        assert ran.returncode == 3 and ran.stderr.startswith("slipstream: BROKER_OUT_OF_REACH: "), ran.stderr
        assert "-v /dev/shm:/dev/shm" in ran.stderr and len(ran.stderr.splitlines()) == 1


def test_a_lease_from_a_container_holds_while_its_process_lives(broker: LocalBroker) -> None:
    command = [*OWN_PIDS, sys.executable, "-c", HOLD, str(broker.store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=containers.ROOT) as reader:
        assert reader.stdout is not None and reader.stdout.readline() == b"held\n"
        assert leases.held_from(broker.store, 0) == 5
        reader.kill()
    await_that(lambda: leases.held_from(broker.store, 0) is None, "the lease of who was killed there ends")


def test_a_lease_from_outside_holds_for_a_broker_in_a_container(broker: LocalBroker) -> None:
    look = "import sys; from store.upkeep import leases; print(leases.held_from(sys.argv[1], 0))"
    with leases.acquire(broker.store, 7, 10**9) as lease:
        assert python(OWN_PIDS, look, broker.store).stdout == "7\n"
        assert lease.path.exists()


@pytest.mark.parametrize("inside", [OWN_PIDS, OWN_BOTH], ids=["pids", "both"])
def test_a_broker_in_a_container(tmp_path: Path, inside: list[str]) -> None:
    with LocalBroker(tmp_path / "broker", inside=inside) as broker:
        running = extent.require_running(broker.store)
        if inside is OWN_PIDS:
            with Producer(str(broker.store), timeout=60) as producer:
                assert producer.send("t", b"from outside").status.name == "PUT_OK"
            assert extent.readable_range(broker.store).source == "broker"
        else:
            with pytest.raises(BrokerOutOfReach):
                Producer(str(broker.store), timeout=60)
        second = LocalBroker(tmp_path / "broker", regionPath=tmp_path)
        assert second.process.wait(300) and "STORE_LOCKED" in second.log.read_text()
        assert running.is_alive()
        _kill(broker)
        await_that(lambda: not running.is_alive(), "the broker that was killed there ends")
    assert extent.running(broker.store) is None
    with LocalBroker(tmp_path / "broker", inside=inside) as again:
        assert not running.is_alive() and extent.require_running(again.store).is_alive()
        _kill(again)


def _kill(broker: LocalBroker) -> None:
    """What was started is unshare, which passes no signal on; --kill-child ends what runs in it."""
    os.kill(broker.process.pid, signal.SIGKILL)
    broker.process.wait()


def test_shared_memory_below_the_store_is_reached_wherever_the_store_is(tmp_path: Path) -> None:
    (tmp_path / "broker" / "store" / "shared").mkdir(parents=True)
    (tmp_path / "mounted").mkdir()
    mount = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
        "sh",
        "-c",
        f'mount --bind {tmp_path}/broker/store {tmp_path}/mounted && exec "$@"',
        "sh",
    ]
    with LocalBroker(tmp_path / "broker", regionPath=tmp_path / "broker" / "store" / "shared"):
        ran = python(mount, LOOK, tmp_path / "mounted")
        assert json.loads(ran.stdout) == [True, "broker", 0], ran.stderr
        assert python(mount, PUT, tmp_path / "mounted").stdout == "PUT_OK\n"
