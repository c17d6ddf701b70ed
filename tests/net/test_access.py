"""Allow lists seen from another host (a network namespace): what it may ask by default, and what lists take from it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.protocol.ha.wire import CloseReason
from tests.harness.conditions import await_that
from tests.harness.ha_node import wait_until
from tests.interop import needs
from tests.interop.rocketmq import MqAdmin
from tests.net import namespaces
from tests.net.namespaces import MASTER, Network
from tests.net.namespaces import SLAVE as ELSEWHERE
from tests.net.pair import OURS, SLAVE, counters_of
from tools.common.local_broker import LocalBroker, end, free_port

CLI = [sys.executable, "-m", "tools.cli"]
NEAR, FAR = "10.77.1.0/24", "10.77.2.0/24"
SECONDS = 240


@pytest.fixture
def network() -> Iterator[Network]:
    reason = namespaces.missing()
    if reason is not None:
        pytest.skip(reason)
    with Network() as made:
        yield made


class NameServerThere:
    """`slipstream namesrv` on the master's host."""

    version = "5.3.3"

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.address = process, f"{MASTER}:{port}"


@contextmanager
def names_at(network: Network, directory: Path, **keys: str) -> Iterator[NameServerThere]:
    directory.mkdir()
    (port, file) = free_port(), directory / "namesrv.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    command = [*CLI, "namesrv", "-c", str(file), "--port", str(port), "--directory", str(directory)]
    process = subprocess.Popen([*network.inside(MASTER), *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline().startswith("ready:")
    try:
        yield NameServerThere(process, port)
    finally:
        end(process, SECONDS)
        process.stdout.close()


def admin(network: Network, host: str, *arguments: str) -> tuple[int, str]:
    """`slipstream admin` on that host: its exit code and all that it says."""
    ran = subprocess.run(
        [*network.inside(host), *CLI, "admin", *arguments, "--timeout", "120"],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    return ran.returncode, ran.stdout + ran.stderr


def test_by_default_a_stranger_looks_and_this_host_changes(network: Network, tmp_path: Path) -> None:
    with (
        names_at(network, tmp_path / "n") as names,
        LocalBroker(
            tmp_path / "m",
            inside=network.inside(MASTER),
            brokerIP1=MASTER,
            brokerIP2=MASTER,
            namesrvAddr=names.address,
            **OURS,
        ) as master,
        LocalBroker(
            tmp_path / "s",
            inside=network.inside(ELSEWHERE),
            brokerIP1=ELSEWHERE,
            brokerIP2=ELSEWHERE,
            brokerName="m",
            namesrvAddr=names.address,
            **OURS,
            **SLAVE,
        ) as slave,
    ):
        at, ask = f"{MASTER}:{master.port}", ("-n", names.address)
        create = ("updateTopic", "-b", at, "-t", "made")
        for command in (create, ("getBrokerConfig", "-b", at), ("updateBrokerConfig", "-b", at, "-k", "a", "-v", "1")):
            code, said = admin(network, ELSEWHERE, *command, *ask)
            assert code and "code 16" in said and f"not allowed from {ELSEWHERE}" in said and "adminAllowList" in said
        assert admin(network, MASTER, *create, *ask)[0] == 0  # from the host's own address, not from loopback
        code, said = admin(network, ELSEWHERE, "deleteTopic", "-c", "DefaultCluster", "-t", "made", *ask)
        assert code and "DELETE_TOPIC_IN_BROKER is not allowed" in said
        # an unmodified cluster needs these: a slave's registration, its master's tables and log, clients' questions
        await_that(
            lambda: f"{ELSEWHERE}:{slave.port}" in admin(network, ELSEWHERE, "clusterList", *ask)[1], "it is registered"
        )
        topics = slave.store / "config" / "topics.json"
        await_that(lambda: topics.exists() and '"made"' in topics.read_text(), "the slave has its master's topics")
        wait_until(counters_of(master.store).in_sync_slaves, lambda count: count == 1)
        rows = doctor(network, ELSEWHERE, at, *ask)
        assert rows["port haListenPort"][0]["level"] == "unknown", "settings are not read from there"
        assert "adminAllowList" in rows["port listenPort"][0]["what"]
        rows = doctor(network, MASTER, str(master.store))
        assert {row["level"] for check in rows for row in rows[check] if check.startswith("port ")} == {"ok", "open"}
        assert "every address: every host may connect" in rows["port haListenPort"][0]["what"]
        assert {row["level"] for row in rows["replica"]} == {"ok"} and rows["identity"][0]["level"] == "ok"


def doctor(network: Network, host: str, *arguments: str) -> dict[str, list[dict[str, str]]]:
    """What `slipstream doctor` says on that host, by check; nothing may be wrong."""
    command = [*network.inside(host), *CLI, "doctor", *arguments, "--json", "--timeout", "120"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows: dict[str, list[dict[str, str]]] = {}
    for row in json.loads(ran.stdout)["rows"]:
        rows.setdefault(row["check"], []).append(row)
    return rows


def test_lists_keep_a_stranger_from_every_port_and_say_which_key(network: Network, tmp_path: Path) -> None:
    lists = dict.fromkeys(("haAllowList", "remotingAllowList", "metricsAllowList"), f"{NEAR}, 2001:db8::/32")
    here = {"brokerIP1": MASTER, "brokerIP2": MASTER, "metricsPromExporterHost": MASTER, **OURS}
    with (
        names_at(network, tmp_path / "n", registerAllowList=NEAR, adminAllowList=FAR) as names,
        LocalBroker(
            tmp_path / "m", inside=network.inside(MASTER), namesrvAddr=names.address, **here, **lists
        ) as master,
        LocalBroker(
            tmp_path / "s",
            inside=network.inside(ELSEWHERE),
            brokerIP1=ELSEWHERE,
            brokerIP2=ELSEWHERE,
            brokerName="m",
            namesrvAddr=names.address,
            haMasterAddress=f"{MASTER}:{master.port + 1}",
            **OURS,
            **SLAVE,
        ) as slave,
    ):
        counters, refused = counters_of(master.store), counters_of(slave.store).ha_client.ended[CloseReason.REFUSED]
        wait_until(counters.ha_ended[CloseReason.NOT_ALLOWED], lambda count: count > 1)
        wait_until(refused, lambda count: count > 0)
        await_that(lambda: "haAllowList" in master.log.read_text(), "the master's log says why")
        await_that(lambda: "registerAllowList" in slave.log.read_text(), "the slave's log says what keeps it out")
        ask = ("-n", names.address)
        assert f"{ELSEWHERE}:{slave.port}" not in admin(network, ELSEWHERE, "clusterList", *ask)[1]
        code, said = admin(network, ELSEWHERE, "brokerStatus", "-b", f"{MASTER}:{master.port}", *ask)
        assert code and "remotingAllowList" in said
        assert admin(network, MASTER, "brokerStatus", "-b", f"{MASTER}:{master.port}", *ask)[0] == 0
        wait_until(counters.metrics_port, lambda port: port > 0)
        fetch = (
            f"import urllib.request as u; u.urlopen('http://{MASTER}:{counters.metrics_port.read()}/metrics').read()"
        )
        for host, is_let_in in ((MASTER, True), (ELSEWHERE, False)):
            ran = subprocess.run([*network.inside(host), sys.executable, "-c", fetch], check=False, capture_output=True)
            assert (ran.returncode == 0) is is_let_in
        assert counters.in_sync_slaves.read() == 0


@pytest.mark.interop
@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_mqadmin_on_another_host_prints_the_refusal(version: str, network: Network, tmp_path: Path) -> None:
    needs.need([version])

    class There(MqAdmin):
        """RocketMQ's mqadmin on another host."""

        def command(self) -> list[str]:
            return [*network.inside(ELSEWHERE), *super().command()]

    with names_at(network, tmp_path / "n") as names:
        names.version = version
        with (
            LocalBroker(
                tmp_path / "m", inside=network.inside(MASTER), brokerIP1=MASTER, namesrvAddr=names.address, **OURS
            ) as master,
            There(tmp_path / "mqadmin", names) as mqadmin,
        ):
            at = f"{MASTER}:{master.port}"
            await_that(lambda: at in mqadmin.said("clusterList"), "a stranger may look")
            mqadmin.said("updateTopic", "-b", at, "-t", "made")
            mqadmin.said("getBrokerConfig", "-b", at)
            mqadmin.said("updateKvConfig", "-s", "a", "-k", "b", "-v", "c")
            told = mqadmin.output.read_text()  # what it says when it fails
            for request in ("UPDATE_AND_CREATE_TOPIC", "GET_BROKER_CONFIG", "PUT_KV_CONFIG"):
                assert f"{request} is not allowed from {ELSEWHERE}: add it to adminAllowList" in told
            assert "CODE: 16" in told
