"""Stores found through a real name server, and what a running pair of brokers lets a read see as confirmed."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.producer import Producer, PutMessageStatus
from ipc import waiting
from ipc.counters import Counters
from spark_bridge import name_servers
from spark_bridge.inventory import find_extent
from spark_bridge.name_servers import NameServersUnreachable, NoReplicaHere
from spark_bridge.options import parse_options
from spark_bridge.planning import plan_read
from spark_bridge.stores import resolve_stores
from store import published
from store.errors import NoBroker
from tests.spark_bridge.stores import read_rows
from tests.tools.test_namesrv import running
from tools.local_broker import LocalBroker

SIZES = {"mappedFileSizeCommitLog": 1 << 18, "maxMessageSize": 1 << 16}
TIMEOUT_MS = 30_000


def await_slave(master: LocalBroker) -> None:
    board = published.require_running(master.store)
    counters = Counters.attach(board.region_directory / published.COUNTERS_FILE, writable=True)
    assert waiting.await_change(counters.cursor("in_sync_slaves"), 0, TIMEOUT_MS) == 1


def test_a_name_server_names_the_replica_on_this_host_once_and_only_a_master_confirms(tmp_path: Path) -> None:
    with running(tmp_path / "ns") as port:
        server = f"127.0.0.1:{port}"
        keys = {"namesrvAddr": server, **SIZES}
        with (
            LocalBroker(tmp_path / "broker-a", brokerRole="SYNC_MASTER", brokerId=0, **keys) as master,
            LocalBroker(
                tmp_path / "slave", brokerName="broker-a", brokerRole="SLAVE", brokerId=1,
                haMasterAddress=master.ha_address, **keys,
            ) as slave,
        ):  # fmt: skip
            await_slave(master)
            with Producer(master.store, timeout=20.0) as producer:
                assert all(producer.send("orders", b"x").status is PutMessageStatus.PUT_OK for _ in range(20))
            options = parse_options({"nameServer": f"127.0.0.1:1;{server}"})
            (found,) = resolve_stores(options)
            assert (Path(found.root).resolve(), found.broker_name) == (Path(master.store).resolve(), "broker-a")
            assert len(read_rows(plan_read(options), ["queueOffset"])) == 20
            confirmed = parse_options({"path": str(master.store), "onlyConfirmed": "true"})
            assert len(read_rows(plan_read(confirmed), ["queueOffset"])) == 20
            slave.stop()
            with Producer(master.store, timeout=20.0) as producer:
                assert producer.send("orders", b"not confirmed").status is not PutMessageStatus.PUT_OK
            assert len(read_rows(plan_read(confirmed), ["queueOffset"])) == 20
            assert len(read_rows(plan_read(options), ["queueOffset"])) == 21
    with pytest.raises(NameServersUnreachable, match="no name server answers"):
        resolve_stores(options)
    with pytest.raises(NoBroker):
        find_extent(str(master.store), only_confirmed=True)


def test_a_broker_whose_files_are_elsewhere_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_servers, "_brokers", lambda _servers: {"broker-b": {0: "192.0.2.1:10911"}})
    with pytest.raises(NoReplicaHere, match=r"'broker-b' has no replica on this host \(192.0.2.1:10911: another host"):
        resolve_stores(parse_options({"nameServer": "127.0.0.1:9876"}))
