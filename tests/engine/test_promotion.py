"""Promotion with real brokers: the master is killed or steps down, a slave takes its place, the old one follows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import NotAMaster
from engine.monitoring.ha_status import ha_status
from engine.producer import Producer
from engine.protocol.ha.put_status import PutMessageStatus
from engine.protocol.ha.reign import Standing
from engine.remoting.peers import fencing
from engine.settings.config import from_mapping
from store.names import CONSUMER_OFFSETS, TOPICS
from store.notes import epochs, peers
from store.reading.extent import running
from store.reading.log_reader import open_log
from store.reading.summary import messages
from store.tables import json_files
from tests.harness.certificates import Authority, server_file
from tests.harness.command_line import run
from tests.harness.conditions import await_that
from tests.harness.served_names import Serving
from tools.common.local_broker import LocalBroker
from tools.common.tls import TLS_CONFIG

pytestmark = pytest.mark.crash
SEGMENT_BYTES = 1 << 20
MASTER, SLAVE = {"brokerRole": "SYNC_MASTER"}, {"brokerRole": "SLAVE", "brokerId": 1}


@pytest.fixture
def names() -> Iterator[Serving]:
    server = Serving()
    yield server
    server.stop()


def broker(directory: Path, **keys: object) -> LocalBroker:
    common = {
        "brokerName": "pair", "mappedFileSizeCommitLog": SEGMENT_BYTES, "haReconnectInterval": 100,
        "slaveTimeout": 120_000, "autoCreateTopicEnable": True,
    }  # fmt: skip
    return LocalBroker(directory, **{**common, **keys})


def put(store: Path, count: int, slaves: int = 0) -> list[bytes]:
    """The bodies that were acknowledged with PUT_OK, put once so many slaves are in sync."""
    await_that(lambda: ha_status(store).in_sync_slaves >= slaves, "a slave is in sync")
    bodies = [b"%s of %s" % (str(number).encode(), store.parent.name.encode()) for number in range(count)]
    with Producer(str(store), timeout=60) as producer:
        statuses = [producer.send("orders", body).status for body in bodies]
    return [body for body, status in zip(bodies, statuses, strict=True) if status is PutMessageStatus.PUT_OK]


def bodies(store: Path) -> list[bytes]:
    return [bytes(message.body) for message in messages(open_log(store))]


def role_of(store: Path) -> str:
    broker = running(store)
    return "" if broker is None else f"{broker.settings['brokerRole']}:{broker.settings['brokerId']}"


def has_all_of(slave: Path, master: Path) -> bool:
    return open_log(slave).max_offset == open_log(master).max_offset > 0


def registered(names: Serving, config_of: LocalBroker) -> int | None:
    """The id under which that broker stands at the name server."""
    for each in list(names.state.routes.brokers.values()):
        for number, address in list(each.addresses.items()):
            if address == f"127.0.0.1:{config_of.port}":
                return int(number)
    return None


def test_a_killed_master_is_replaced_and_comes_back_without_what_only_it_had(tmp_path: Path, names: Serving) -> None:
    at = {"namesrvAddr": f"127.0.0.1:{names.port}"}
    with broker(tmp_path / "a", **MASTER, **at) as a, broker(tmp_path / "b", **SLAVE, **at) as b:
        acknowledged = put(a.store, 30, slaves=1)
        assert len(acknowledged) == 30
        ran = run("promote", b.store)
        assert (ran.exit_code, "ROLE_REFUSED" in ran.stderr, "--switch" in ran.stderr) == (1, True, True), ran.output
        b.stop()  # cut off
        with Producer(str(a.store), timeout=60) as producer:
            for number in range(5):
                producer.send("orders", b"nobody else has %d" % number, wait=False)
            producer.flush(appended_only=True)  # in the log, not only in the ring that goes with its broker
        a.process.kill()
        a.process.wait()
        with broker(tmp_path / "b", **SLAVE, **at) as b:
            assert run("promote", b.store).exit_code == 0
            assert role_of(b.store) == "ASYNC_MASTER:0"
            assert b.process.poll() is None, "the same process"
            assert bodies(b.store) == acknowledged
            acknowledged += put(b.store, 30)
            await_that(lambda: registered(names, b) == 0, "the name server calls it the master")
            _come_back(tmp_path / "a", names, b, at)
            assert bodies(a.store) == bodies(b.store) == acknowledged
    assert [(one.epoch, one.broker) for one in epochs.read(a.store).entries] == [(1, "pair:1")]


def _come_back(directory: Path, names: Serving, master: LocalBroker, at: dict[str, str]) -> None:
    """The old master is told that it has diverged, is rewound by the command that it names, and follows."""
    with broker(directory, **MASTER, **at) as again:
        assert role_of(again.store) == "SLAVE:1", again.log.read_text()
        command = f"slipstream replica rewind {again.store} --with 127.0.0.1:{master.port}"
        await_that(lambda: any(command in line for line in ha_status(again.store).problems), "the command is named")
    ran = run(*command.split()[1:], "--json")
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["records"] == 5
    assert run("log", "cat", json.loads(ran.stdout)["kept"]).stdout.count("orders") == 5
    with broker(directory, **MASTER, **at) as again:
        await_that(lambda: has_all_of(again.store, master.store), "the old master follows")
        await_that(lambda: registered(names, again) == 1, "it is registered as a slave")
        with pytest.raises(NotAMaster):
            Producer(str(again.store), timeout=60)
        ran = run("replica", "check", again.store, "--with", f"127.0.0.1:{master.port}")
        assert (ran.exit_code, ran.stdout.splitlines()[0]) == (0, "IDENTICAL"), ran.output


def offsets_of(store: Path) -> object:
    path = store / "config" / CONSUMER_OFFSETS
    return json_files.read(path).get("offsetTable") if path.exists() else None


def test_a_pair_without_a_name_server_has_the_masters_tables_after_its_death(tmp_path: Path) -> None:
    offsets = {"orders@shop": {0: 7, 1: 4}}
    json_files.write(tmp_path / "a" / "store" / "config" / CONSUMER_OFFSETS, {"offsetTable": offsets})
    with broker(tmp_path / "a", **MASTER) as a, broker(tmp_path / "b", **SLAVE, haMasterAddress=a.ha_address) as b:
        put(a.store, 20, slaves=1)
        await_that(lambda: offsets_of(b.store) == offsets, "the master said where it answers")
        await_that(lambda: "orders" in topics_of(b.store), "topics, too")
        a.process.kill()
        a.process.wait()
        ran = run("promote", b.store)
        assert ran.exit_code == 0 and "NOT FENCED" in ran.stdout and "NO_TABLES" not in ran.output, ran.output
        assert offsets_of(b.store) == offsets
        assert topics_of(b.store)["orders"] == topics_of(a.store)["orders"]


def topics_of(store: Path) -> dict[str, object]:
    path = store / "config" / TOPICS
    return dict(json_files.read(path)["topicConfigTable"]) if path.exists() else {}


@pytest.fixture(params=["plaintext", "TLS"])
def secured(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The settings of both brokers; with TLS nothing but TLS is served at any of their ports."""
    if request.param == "plaintext":
        return {}
    authority = Authority(tmp_path / "ca")
    own, trusts = authority.issue("node"), authority.certificate
    file = server_file(tmp_path / "tls.properties", own, client_trustCertPath=trusts)
    monkeypatch.setenv(TLS_CONFIG, str(file))
    return {"tls.server.mode": "enforcing", "tls.config.file": file, "haTlsMode": "enforcing"}


def test_a_living_master_steps_down_and_takes_over_again(tmp_path: Path, secured: dict[str, object]) -> None:
    offsets = {"orders@shop": {0: 7, 1: 4}}
    json_files.write(tmp_path / "a" / "store" / "config" / CONSUMER_OFFSETS, {"offsetTable": offsets})
    with (
        broker(tmp_path / "a", **MASTER, **secured) as a,
        broker(tmp_path / "b", **SLAVE, haMasterAddress=a.ha_address, **secured) as b,
    ):
        acknowledged = put(a.store, 50, slaves=1)
        ran = run("promote", b.store, "--switch")
        assert ran.exit_code == 0, ran.output
        await_that(lambda: (role_of(b.store), role_of(a.store)) == ("ASYNC_MASTER:0", "SLAVE:1"), "both have changed")
        await_that(lambda: offsets_of(b.store) == offsets, "the old master was asked for consumers' offsets once more")
        acknowledged += put(b.store, 50)
        ran = run("promote", a.store, "--switch", "--master", f"127.0.0.1:{b.port}")
        assert ran.exit_code == 0, ran.output
        await_that(lambda: (role_of(b.store), role_of(a.store)) == ("SLAVE:1", "SYNC_MASTER:0"), "and back")
        acknowledged += put(a.store, 50, slaves=1)
        await_that(lambda: has_all_of(b.store, a.store), "the slave follows again")
        assert bodies(a.store) == bodies(b.store) == acknowledged
        assert run("promote", a.store).exit_code == 1, "it is a master already"
    for store in (a.store, b.store):
        assert [(one.epoch, one.broker) for one in epochs.read(store).entries] == [(1, "pair:1"), (2, "pair:0")]


def test_a_slave_of_a_slave_follows_the_promoted_one(tmp_path: Path) -> None:
    with (
        broker(tmp_path / "a", **MASTER) as a,
        broker(tmp_path / "b", **SLAVE, haMasterAddress=a.ha_address) as b,
        broker(tmp_path / "c", brokerRole="SLAVE", brokerId=2, haMasterAddress=b.ha_address) as c,
    ):
        acknowledged = put(a.store, 50, slaves=1)
        await_that(lambda: has_all_of(c.store, a.store), "bytes go through the middle one")
        a.process.kill()
        a.process.wait()
        advice = f"`slipstream promote {b.store}`"
        await_that(lambda: any(advice in line for line in ha_status(b.store).problems), "the command is named")
        assert run("promote", b.store).exit_code == 0
        acknowledged += put(b.store, 50)
        await_that(lambda: has_all_of(c.store, b.store), "it follows the middle one")
        assert bodies(c.store) == acknowledged
        with broker(tmp_path / "a", **MASTER) as again:  # no name server, so it cannot know: its operator tells it
            ran = run("demote", again.store, "--master", b.ha_address)
            assert ran.exit_code == 0, ran.output
            await_that(lambda: has_all_of(again.store, b.store), "the old master is the third one")
            assert bodies(again.store) == acknowledged


def test_a_running_master_follows_the_one_that_was_promoted_beside_it_and_takes_over_again(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"of this pair alone, and nobody else's")
    keys = {"haSecretFile": secret}
    with (
        broker(tmp_path / "a", **MASTER, **keys) as a,
        broker(tmp_path / "b", **SLAVE, haMasterAddress=a.ha_address, **keys) as b,
    ):
        acknowledged = put(a.store, 20, slaves=1)
        await_that(lambda: peers.read(a.store), "the master keeps where its slave answers")
        assert run("promote", b.store, "--force").exit_code == 0
        await_that(lambda: role_of(a.store) == "SLAVE:1", "it asks its slave, whose word is proved")
        acknowledged += put(b.store, 20, slaves=1)
        await_that(lambda: has_all_of(a.store, b.store), "it follows")
        ran = run("promote", a.store, "--switch")
        assert ran.exit_code == 0, ran.output
        acknowledged += put(a.store, 20, slaves=1)
        await_that(lambda: has_all_of(b.store, a.store), "the other one follows again")
        assert bodies(a.store) == bodies(b.store) == acknowledged
        assert [one.epoch for one in epochs.read(b.store).entries] == [1, 2]


def test_a_store_without_a_broker_is_promoted_at_its_next_start(tmp_path: Path) -> None:
    with broker(tmp_path / "a", **MASTER) as a, broker(tmp_path / "b", **SLAVE, haMasterAddress=a.ha_address) as b:
        acknowledged = put(a.store, 20, slaves=1)
    assert run("promote", b.store).exit_code == 0
    with broker(tmp_path / "b", **SLAVE, haMasterAddress=a.ha_address, promotedRole="SYNC_MASTER", inSyncReplicas=1):
        assert role_of(b.store) == "SYNC_MASTER:0"
        acknowledged += put(b.store, 20)
    assert bodies(b.store) == acknowledged
    assert epochs.read(b.store).last_epoch == 1
    assert run("demote", b.store, "--master", a.ha_address).exit_code == 0
    with broker(tmp_path / "b", **SLAVE, haMasterAddress="127.0.0.1:1"):
        assert role_of(b.store) == "SLAVE:1"


def test_name_servers_that_know_no_other_master_fence_nobody(tmp_path: Path, names: Serving) -> None:
    config = from_mapping(
        {
            "storePathRootDir": tmp_path,
            "brokerName": "pair",
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": f"127.0.0.1:1;127.0.0.1:{names.port}",
        }
    )
    circle = fencing.circle_of(config, None, lambda: fencing.log_at_rest(config))
    assert fencing.judged(circle, Standing((), is_master=True, is_confirmed=True)) == []
