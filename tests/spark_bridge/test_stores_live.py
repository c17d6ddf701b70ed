"""Stores found through a real name server, and what a running pair of brokers lets a read see as confirmed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from engine.producer.producer import Producer, PutMessageStatus
from ipc.counters import Counters
from spark_bridge.options.read import parse_options
from spark_bridge.options.rows import RowOptions
from spark_bridge.plan.inventory import find_extent
from spark_bridge.plan.planner import plan_read
from spark_bridge.plan.stores import resolve_stores
from spark_bridge.replica import name_servers
from spark_bridge.replica.name_servers import NameServersUnreachable, NoReplicaHere
from spark_bridge.replica.replica import ReplicaBehind
from store.errors import NoBroker
from store.files.pointer import COUNTERS_FILE
from store.reading import extent
from tests.harness.conditions import await_that
from tests.spark_bridge.stores import read_rows
from tests.tools.run.test_namesrv import running
from tools.common.local_broker import LocalBroker, free_port

SIZES = {"mappedFileSizeCommitLog": 1 << 18, "maxMessageSize": 1 << 16, "slaveTimeout": 60_000,
         "haHousekeepingInterval": 120_000}  # fmt: skip
TIMEOUT_MS = 120_000


def await_slaves(master: LocalBroker, count: int) -> None:
    counters = Counters.attach(extent.require_running(master.store).region_directory / COUNTERS_FILE)
    await_that(lambda: counters.cursor("in_sync_slaves").read() == count, f"{count} slaves are in sync")
    counters.close()


def test_a_name_server_names_the_replica_on_this_host_once_and_only_a_master_confirms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_servers, "TIMEOUT_S", TIMEOUT_MS / 1000)
    with running(tmp_path / "ns") as port:
        server = f"127.0.0.1:{port}"
        keys = {"namesrvAddr": server, **SIZES}
        with (
            LocalBroker(tmp_path / "broker-a", brokerRole="SYNC_MASTER", brokerId=0, **keys) as master,
            LocalBroker(
                tmp_path / "slave",
                brokerName="broker-a",
                brokerRole="SLAVE",
                brokerId=1,
                haMasterAddress=master.ha_address,
                **keys,
            ) as slave,
        ):
            await_slaves(master, 1)
            await_that(
                lambda: {0, 1} <= set(name_servers._brokers([server]).get("broker-a", {})), "both are registered"
            )
            with Producer(master.store, timeout=60.0) as producer:
                assert all(producer.send("orders", b"x").status is PutMessageStatus.PUT_OK for _ in range(20))
            options = parse_options({"nameServer": f"127.0.0.1:1;{server}"})
            (found,) = resolve_stores(options)
            assert (Path(found.root).resolve(), found.broker_name) == (Path(master.store).resolve(), "broker-a")
            assert len(read_rows(plan_read(options), ["queueOffset"])) == 20
            confirmed = parse_options({"path": str(master.store), "onlyConfirmed": "true"})
            assert len(read_rows(plan_read(confirmed), ["queueOffset"])) == 20
            slave.stop()
            await_slaves(master, 0)
            with Producer(master.store, timeout=60.0) as producer:
                assert producer.send("orders", b"not confirmed").status is not PutMessageStatus.PUT_OK
            assert len(read_rows(plan_read(confirmed), ["queueOffset"])) == 20
            assert len(read_rows(plan_read(options), ["queueOffset"])) == 21
    with pytest.raises(NameServersUnreachable, match="no name server answers"):
        resolve_stores(options)
    with pytest.raises(NoBroker):
        find_extent(str(master.store), only_confirmed=True)


def test_a_broker_whose_files_are_elsewhere_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_servers, "_brokers", lambda _servers, _tls: {"broker-b": {0: "192.0.2.1:10911"}})
    with pytest.raises(NoReplicaHere, match=r"'broker-b' has no replica on this host \(192.0.2.1:10911: another host"):
        resolve_stores(parse_options({"nameServer": "127.0.0.1:9876"}))


def test_a_slave_that_has_not_received_yet_is_waited_for_and_reported(tmp_path: Path) -> None:
    # One segment: a new slave begins with the master's last one.
    keys = {"brokerName": "broker-a", **SIZES, "mappedFileSizeCommitLog": 1 << 20}
    here = tmp_path / "here"  # where each host has its replica
    with LocalBroker(tmp_path / "master", brokerRole="ASYNC_MASTER", **keys) as master:
        with Producer(master.store, timeout=60.0) as producer:
            assert producer.send_batch("orders", [b"x" * 100] * 3000).status is PutMessageStatus.PUT_OK
        here.symlink_to(master.store)
        whole, topic = (plan_read(parse_options({"path": str(here), **more})) for more in ({}, {"topic": "orders"}))
        slave = {"brokerRole": "SLAVE", "brokerId": 1, **keys}
        with LocalBroker(tmp_path / "slave", haMasterAddress=f"127.0.0.1:{free_port()}", **slave) as cut_off:
            here.unlink()
            here.symlink_to(cut_off.store)
            for splits in (whole, topic):
                with pytest.raises(ReplicaBehind):
                    read_rows(splits, ["queueOffset"], RowOptions(replica_wait_s=0.2))
        counts: list[int] = []

        def read() -> None:
            patient = RowOptions(replica_wait_s=TIMEOUT_MS)
            counts.extend(len(read_rows(splits, ["queueOffset"], patient)) for splits in (whole, topic))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        with LocalBroker(tmp_path / "slave", haMasterAddress=master.ha_address, **slave):
            reader.join(TIMEOUT_MS / 1000 * 4)
            assert counts == [3000, 3000]
