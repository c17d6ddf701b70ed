"""Ways to two masters, with real brokers: one of both takes messages in the end, or both say that there are two."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.errors import EngineError
from engine.monitoring.ha_status import ha_status
from engine.producer import Producer
from engine.protocol.ha.put_status import PutMessageStatus
from engine.shared_memory.cursors import BrokerCounters, Reign
from store.errors import StoreError
from store.notes import epochs, peers
from store.reading.extent import running
from store.reading.log_reader import open_log
from store.reading.summary import messages
from tests.harness.command_line import run
from tests.harness.conditions import await_that
from tests.harness.killing import kill_broker
from tests.harness.served_names import Serving
from tests.interop import needs
from tests.interop.rocketmq import NameServer
from tools.common.local_broker import LocalBroker

pytestmark = pytest.mark.crash
MASTER, SLAVE = {"brokerRole": "SYNC_MASTER"}, {"brokerRole": "SLAVE", "brokerId": 1}


@pytest.fixture
def names() -> Iterator[Serving]:
    server = Serving()
    yield server
    server.stop()


@pytest.fixture(params=["ours", "5.3.3"])
def names_at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a name server answers, ours or RocketMQ's."""
    if request.param == "ours":
        server = Serving()
        yield f"127.0.0.1:{server.port}"
        server.stop()
        return
    needs.need([request.param])
    with NameServer(tmp_path / "names", request.param) as real:
        yield real.address


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(b"of this pair alone, and nobody else's")
    return tmp_path / "secret"


def broker(directory: Path, **keys: object) -> LocalBroker:
    common = {
        "brokerName": "pair", "mappedFileSizeCommitLog": 1 << 20, "haReconnectInterval": 100, "slaveTimeout": 120_000,
        "autoCreateTopicEnable": True,
    }  # fmt: skip
    return LocalBroker(directory, **{**common, **keys})


def put(store: Path, count: int, slaves: int = 0) -> list[bytes]:
    """The bodies that were acknowledged, put once so many slaves are in sync."""
    await_that(lambda: ha_status(store).in_sync_slaves >= slaves, "slaves are in sync")
    bodies = [b"%s of %s" % (str(number).encode(), store.parent.name.encode()) for number in range(count)]
    with Producer(str(store), timeout=60) as producer:
        statuses = [producer.send("orders", body).status for body in bodies]
    return [body for body, status in zip(bodies, statuses, strict=True) if status is PutMessageStatus.PUT_OK]


def sent(producer: Producer, body: bytes) -> list[bytes]:
    """The body, if it is acknowledged."""
    with suppress(EngineError, StoreError):
        return [body] if producer.send("orders", body).status is PutMessageStatus.PUT_OK else []
    return []


def role_of(broker: LocalBroker) -> str:
    with suppress(StoreError):
        there = running(broker.store)
        return "" if there is None else str(there.settings["brokerRole"])
    return ""


def masters(*brokers: LocalBroker) -> list[LocalBroker]:
    return [one for one in brokers if role_of(one).endswith("MASTER")]


def reign_of(broker: LocalBroker) -> int:
    there = running(broker.store)
    assert there is not None
    with closing(BrokerCounters.attach(there.region_directory).region) as region:
        return BrokerCounters(region).reign.read()


def bodies(store: Path) -> list[bytes]:
    return [bytes(message.body) for message in messages(open_log(store))]


def signal_all(broker: LocalBroker, number: int) -> None:
    """As a host does that is suspended, and goes on."""
    whole = psutil.Process(broker.process.pid)
    for process in (whole, *whole.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def at_once(*command_lines: tuple[object, ...]) -> list[subprocess.CompletedProcess[str]]:
    """Commands that begin together; what came of each."""
    begun = [
        subprocess.Popen(
            [sys.executable, "-m", "tools.cli", *map(str, line)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in command_lines
    ]
    ended = [(one, *one.communicate(timeout=300)) for one in begun]
    return [subprocess.CompletedProcess(one.args, one.returncode, out, err) for one, out, err in ended]


def test_a_frozen_master_that_wakes_up_becomes_the_slave_of_the_promoted_one(tmp_path: Path, secret: Path) -> None:
    keys = {"haSecretFile": secret}
    with (
        broker(tmp_path / "a", brokerRole="ASYNC_MASTER", **keys) as a,
        broker(tmp_path / "b", **SLAVE, haMasterAddress=a.ha_address, **keys) as b,
        Producer(str(a.store), timeout=20) as late,
    ):
        acknowledged = put(a.store, 20, slaves=1)
        acknowledged += sent(late, b"before it froze")
        await_that(lambda: open_log(a.store).max_offset == open_log(b.store).max_offset, "the slave has all")
        await_that(lambda: peers.read(a.store) == (f"127.0.0.1:{b.port}",), "the master keeps where its slave answers")
        await_that(lambda: peers.read(b.store) == (f"127.0.0.1:{a.port}",), "and the slave where its master does")
        signal_all(a, signal.SIGSTOP)
        try:
            ran = run("promote", b.store, "--force", "--json")
            assert (ran.exit_code, json.loads(ran.stdout)["fenced"]) == (0, True), ran.output
            acknowledged += put(b.store, 20)
        finally:
            signal_all(a, signal.SIGCONT)
        acknowledged += sent(late, b"to a master that was replaced")
        await_that(lambda: role_of(a) == "SLAVE", "it asks who is the master, and steps down")
        await_that(lambda: open_log(a.store).max_offset == open_log(b.store).max_offset, "it follows")
        acknowledged += put(b.store, 20, slaves=1)
        assert masters(a, b) == [b]
        assert set(acknowledged) <= set(bodies(b.store))
        kill_broker(b)
        kill_broker(a)
        with broker(tmp_path / "a", **MASTER, **keys) as again:
            assert role_of(again) == "SLAVE", "it is remembered"


def test_an_older_master_that_only_a_name_server_reaches_yields_by_the_secret(
    tmp_path: Path, names_at: str, secret: Path
) -> None:
    apart = {"brokerIP1": "127.0.0.99", "bindAddress": "127.0.0.1"}  # where each says that it answers, nobody does
    keys = {"haSecretFile": secret, "namesrvAddr": names_at, **apart}
    with (
        broker(tmp_path / "a", **MASTER, **keys) as a,
        broker(tmp_path / "b", **SLAVE, haMasterAddress=a.ha_address, **keys) as b,
    ):
        acknowledged = put(a.store, 20, slaves=1)
        assert run("promote", b.store, "--force").exit_code == 0
        await_that(lambda: role_of(a) == "SLAVE", "it reads the proof in the other one's registration")
        acknowledged += put(b.store, 20)
        assert masters(a, b) == [b] and set(acknowledged) <= set(bodies(b.store))


def test_one_of_two_slaves_promoted_at_once_becomes_the_master(tmp_path: Path, names_at: str) -> None:
    at = {"namesrvAddr": names_at}
    with (
        broker(tmp_path / "a", **MASTER, **at) as a,
        broker(tmp_path / "b", **SLAVE, haMasterAddress=a.ha_address, **at) as b,
        broker(tmp_path / "c", **{**SLAVE, "brokerId": 2}, haMasterAddress=a.ha_address, **at) as c,
    ):
        acknowledged = put(a.store, 20, slaves=2)
        await_that(lambda: len({open_log(one.store).max_offset for one in (a, b, c)}) == 1, "all have all")
        kill_broker(a)
        ended = at_once(("promote", b.store), ("promote", b.store), ("promote", c.store))
        assert sorted(one.returncode for one in ended) == [0, 1, 1], [one.stdout + one.stderr for one in ended]
        assert all("ROLE_REFUSED" in one.stderr for one in ended if one.returncode)
        await_that(lambda: len(masters(b, c)) == 1 and {role_of(b), role_of(c)} >= {"SLAVE"}, "one of both")
        (master,) = masters(b, c)
        acknowledged += put(master.store, 20)
        assert set(acknowledged) <= set(bodies(master.store))


def test_name_servers_list_a_promoted_master_as_one_only_once_it_has_asked_who_else_is(
    tmp_path: Path, names: Serving
) -> None:
    """Two slaves promoted at once would replace each other in the list, and one would not find the other."""
    at, seen = {"namesrvAddr": f"127.0.0.1:{names.port}"}, list[tuple[int, int]]()
    register = names.state.routes.register

    def noted(who: Any, *more: Any) -> Any:
        if who.address.endswith(f":{b.port}"):
            seen.append((who.broker_id, reign_of(b)))
        return register(who, *more)

    with (
        broker(tmp_path / "a", **MASTER, **at) as a,
        broker(tmp_path / "b", **{**SLAVE, "brokerId": 7}, haMasterAddress=a.ha_address, **at) as b,
    ):
        put(a.store, 20, slaves=1)
        kill_broker(a)
        names.do(lambda: setattr(names.state.routes, "register", noted))
        assert run("promote", b.store).exit_code == 0
        await_that(lambda: any(number == 0 for number, _reign in seen), "it is listed as the master")
    assert (7, Reign.ASKS) in seen
    assert {reign for number, reign in seen if number == 0} == {Reign.CONFIRMED}


def test_one_of_two_switches_at_once_is_done(tmp_path: Path, names: Serving) -> None:
    at = {"namesrvAddr": f"127.0.0.1:{names.port}"}
    with (
        broker(tmp_path / "a", **MASTER, **at) as a,
        broker(tmp_path / "b", **SLAVE, haMasterAddress=a.ha_address, **at) as b,
        broker(tmp_path / "c", **{**SLAVE, "brokerId": 2}, haMasterAddress=a.ha_address, **at) as c,
    ):
        acknowledged = put(a.store, 20, slaves=2)
        ended = at_once(*(("promote", one.store, "--switch", "--master", f"127.0.0.1:{a.port}") for one in (b, c)))
        assert [one.returncode == 0 for one in ended].count(True) == 1, [one.stdout + one.stderr for one in ended]
        await_that(lambda: len(masters(a, b, c)) == 1 and role_of(a) == "SLAVE", "one master")
        (master,) = masters(b, c)
        acknowledged += put(master.store, 20)
        assert set(acknowledged) <= set(bodies(master.store))


def test_where_nothing_fences_both_say_that_there_are_two(tmp_path: Path) -> None:
    with broker(tmp_path / "a", **MASTER) as a, broker(tmp_path / "b", **SLAVE, haMasterAddress=a.ha_address) as b:
        put(a.store, 20, slaves=1)
        await_that(lambda: bool(peers.read(a.store) and peers.read(b.store)), "each knows where the other answers")
        ran = run("promote", b.store, "--force")
        assert ran.exit_code == 0 and "NOT FENCED" in ran.stdout, ran.output
        command = f"slipstream demote STORE --master {b.ha_address}"
        assert command in ran.stdout
        await_that(lambda: any("two masters" in line for line in ha_status(a.store).problems), "the old one says so")
        await_that(lambda: any("two masters" in line for line in ha_status(b.store).problems), "and the new one")
        assert masters(a, b) == [a, b], "nobody proves anything here: a person decides"
        line = next(line for line in ha_status(a.store).problems if "two masters" in line)
        assert f"slipstream demote {a.store} --master {b.ha_address}" in line
        ran = run("replica", "check", a.store, "--with", f"127.0.0.1:{b.port}")
        assert run("demote", a.store, "--master", b.ha_address).exit_code == 0
        await_that(lambda: not ha_status(b.store).problems, "it is over")
    assert epochs.read(b.store).last_epoch == 1
