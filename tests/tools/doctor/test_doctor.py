"""`slipstream doctor` at running brokers: a pair that is well, one that is not, one that is not there; as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.harness.certificates import Authority, server_file, tls_file
from tests.harness.command_line import Ran, run
from tests.harness.conditions import await_that
from tests.harness.ha_node import wait_for, wait_until
from tests.interop.sides import OurNameServer
from tools.common.local_broker import LocalBroker

SMALL = {
    "mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536, "brokerName": "a",
    "slaveTimeout": 120_000, "haHousekeepingInterval": 120_000,
}  # fmt: skip
PATIENTLY = ("--timeout", "120")  # a broker of a busy machine answers, but not always within three seconds
Row = dict[str, Any]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalBroker, LocalBroker, str]]:
    directory = tmp_path_factory.mktemp("doctor")
    with OurNameServer(directory / "n", "5.3.3") as names:
        both = {**SMALL, "namesrvAddr": names.address}
        with (
            LocalBroker(directory / "m", **both) as master,
            LocalBroker(directory / "s", brokerRole="SLAVE", brokerId=1, **both) as slave,
            Producer(master.store, timeout=60.0) as producer,
        ):
            producer.send("t", b"body")
            counters = BrokerCounters.attach(extent.require_running(master.store).region_directory, writable=True)
            wait_for(counters.ha[0].slave_ack_offset, counters.max_physical_offset.read())
            wait_until(counters.in_sync_slaves, lambda count: count == 1)
            await_that(lambda: well(master.store) and well(slave.store), "both are registered and in sync", pause=0.5)
            yield master, slave, names.address


def well(target: object) -> bool:
    return run("doctor", target, "--json", *PATIENTLY).exit_code == 0


def rows_of(target: object, *options: str, code: int = 0) -> dict[str, list[Row]]:
    """The rows by their check. A process of a busy machine may be late, which is wrong for as long."""
    tried: list[Ran] = []

    def said() -> str | None:
        tried.append(run("doctor", target, "--json", *PATIENTLY, *options))
        return tried[-1].stdout if tried[-1].exit_code == code else None

    with suppress(AssertionError):
        await_that(said, f"the doctor ends with {code}", pause=0.5)
    assert tried[-1].exit_code == code, tried[-1].output
    answer = json.loads(tried[-1].stdout)
    assert answer["ok"] is (code == 0)
    by_check: dict[str, list[Row]] = {}
    for row in answer["rows"]:
        assert row["level"] in ("ok", "open", "unknown", "wrong") and row["reason"] and row["what"]
        assert row["next"] or row["level"] in ("ok", "unknown")
        by_check.setdefault(row["check"], []).append(row)
    return by_check


def levels(rows: list[Row]) -> set[str]:
    return {row["level"] for row in rows}


def test_a_pair_that_is_well(pair: tuple[LocalBroker, LocalBroker, str]) -> None:
    master, slave, names = pair
    found = rows_of(master.store)
    assert levels([row for rows in found.values() for row in rows]) == {"ok"}
    assert f"a:0 at 127.0.0.1:{master.port}, a:1 at 127.0.0.1:{slave.port}" in found["name servers"][0]["what"]
    assert "only this host" in found["port haListenPort"][0]["what"]
    assert "from offset 0, stored 20" in found["history"][0]["what"]
    assert "in sync" in found["replica"][0]["what"]
    assert "1 front, " in found["clients"][0]["what"] and "delay, transactions run" in found["clients"][0]["what"]
    found = rows_of(slave.store)
    assert "follows 127.0.0.1" in found["replication"][0]["what"]
    assert [row["level"] for row in found["history"]] == ["ok", "ok"], "its own, and against its master's"
    assert found["segments"][0]["level"] == "ok" and len(found["clock"]) == 2
    assert names in found["name servers"][0]["what"]


def test_for_an_address_the_doctor_says_what_it_could_not_check(pair: tuple[LocalBroker, LocalBroker, str]) -> None:
    found = rows_of(f"127.0.0.1:{pair[0].port}")
    assert levels(found["files"]) == levels(found["replication"]) == {"unknown"}
    for check in ("identity", "disk", "history", "segments", "clients"):
        assert levels(found[check]) == {"ok"}, check


def test_a_name_server_that_is_gone_or_knows_another_is_reported(pair: tuple[LocalBroker, LocalBroker, str]) -> None:
    found = rows_of(pair[0].store, "-n", "127.0.0.1:9", code=1)
    assert [row["reason"] for row in found["name servers"]] == ["UNREACHABLE", "OK"]
    assert "slipstream admin clusterList -n 127.0.0.1:9" in found["name servers"][0]["next"]


def test_a_name_server_lists_its_brokers_and_the_doctor_asks_them(pair: tuple[LocalBroker, LocalBroker, str]) -> None:
    names = pair[2]
    found = rows_of(names)
    assert "2 brokers of DefaultCluster" in found["name server"][0]["what"]
    assert levels(found["broker"]) == {"ok"} and len(found["broker"]) == 2
    found = rows_of(names, "-n", "127.0.0.1:9", code=1)
    assert [row["reason"] for row in found["name server"]] == ["OK", "NOT_CHECKED", "UNREACHABLE"]


def test_a_store_that_others_may_read_or_write(pair: tuple[LocalBroker, LocalBroker, str]) -> None:
    store, before = pair[0].store, pair[0].store.stat().st_mode
    try:
        store.chmod(0o755)
        (row,) = rows_of(store)["files"]
        assert (row["level"], row["reason"]) == ("open", "OPEN") and row["next"] == f"`chmod -R o-rwx {store}`"
        assert run("doctor", store, "--strict", *PATIENTLY).exit_code == 1
        store.chmod(0o757)
        (row,) = rows_of(store, code=1)["files"]
        assert (row["level"], row["reason"]) == ("wrong", "PERMISSIONS") and str(store) in row["what"]
    finally:
        store.chmod(before)


def test_for_people_each_row_says_what_to_type(pair: tuple[LocalBroker, LocalBroker, str]) -> None:
    def said() -> list[str] | None:
        """A process of a busy machine may be late, which is wrong for as long."""
        ran = run("doctor", pair[0].store, "-n", "127.0.0.1:9", *PATIENTLY)
        assert ran.exit_code == 1, ran.output
        found = ran.stdout.splitlines()
        return found if found[-1].endswith("checks: 1 wrong, 0 left open") else None

    lines = await_that(said, "nothing else is wrong", pause=0.5)
    (at,) = [number for number, line in enumerate(lines) if line.startswith("wrong")]
    assert "UNREACHABLE" in lines[at] and "next: `slipstream admin clusterList" in lines[at + 1]


def test_a_slave_that_cannot_follow_has_the_reason_of_ha_status(tmp_path: Path) -> None:
    keys = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": "127.0.0.1:9"}
    with LocalBroker(tmp_path / "s", **keys, **SMALL) as slave:
        await_that(lambda: not well(slave.store), "it has tried")

        def said() -> Row | None:
            """While it tries again there is another reason for a moment."""
            rows = rows_of(slave.store, code=1)["status"]
            return next((row for row in rows if row["reason"] == "NO_LISTENER"), None)

        row = await_that(said, "it says so", pause=0.2)
        assert "does not answer" in row["what"] and f"`slipstream doctor {slave.store}`" in row["next"]
    (row,) = rows_of(slave.store, code=1)["broker"]
    assert row["reason"] == "STOPPED" and "slipstream broker -c FILE" in row["next"]


def test_a_broker_that_takes_tls_only_is_asked_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    own = authority.issue("server")
    own.key.chmod(0o600)
    of_server = server_file(tmp_path / "server", own)
    of_client = tls_file(tmp_path / "client", client_trustCertPath=authority.certificate, client_authServer="true")
    keys = {"tls.server.mode": "enforcing", "tls.config.file": of_server}
    with LocalBroker(tmp_path / "b", **keys, **SMALL) as broker:
        wait_until(ports_of(broker).listen_port, lambda port: port > 0)

        def wrong() -> set[str]:
            found = rows_of(broker.store, "--tls-config", str(of_client), code=1)
            return {check for check in found if "wrong" in levels(found[check])}

        await_that(lambda: wrong() == {"certificate"}, "all else is well", pause=0.5)
        found = rows_of(broker.store, "--tls-config", str(of_client), code=1)
        (row,) = found["certificate"]
        assert (row["reason"], row["level"]) == ("CERTIFICATE", "wrong") and "for 2.0 days" in row["what"]
        own.key.chmod(0o644)
        (row,) = rows_of(broker.store, "--tls-config", str(of_client), code=1)["files"]
        assert row["reason"] == "PERMISSIONS" and str(own.key) in row["what"] and "chmod" in row["next"]
        (row,) = rows_of(broker.store, code=1)["broker"]
        assert row["reason"] == "NO_LISTENER" and "accepts only TLS" in row["what"]
        strangers = Authority(tmp_path / "other", "somebody else").certificate
        other = tls_file(tmp_path / "wrong", client_trustCertPath=strangers, client_authServer="true")
        (row,) = rows_of(broker.store, "--tls-config", str(other), code=1)["certificate"]
        assert "not accepted" in row["what"]


def ports_of(broker: LocalBroker) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory)


def test_a_silent_broker_and_an_invalid_target(tmp_path: Path) -> None:
    (row,) = rows_of("127.0.0.1:9", code=1)["broker"]
    assert row["reason"] == "UNREACHABLE" and "127.0.0.1:9" in row["what"]
    for target in (tmp_path, tmp_path / "none", "nowhere", "a:b"):
        ran = run("doctor", target)
        assert ran.exit_code == 2 and "NOT_A_STORE" in ran.stderr
