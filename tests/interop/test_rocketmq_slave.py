"""An unmodified RocketMQ 4.9.7 at the other end of the HA connection, on either side: both logs hold the same bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from ipc.counters import Cursor
from store.reading import extent
from tests.harness.audit import messages_of
from tests.harness.ha_node import wait_until
from tests.interop import needs
from tests.interop.remoting import Client
from tests.interop.rocketmq import RocketMQBroker
from tools.common.local_broker import LocalBroker

SEGMENT = 256 * 1024
SIZES = {"mappedFileSizeCommitLog": SEGMENT}
WAIT_MS = 180_000
PATIENT = {"haHousekeepingInterval": WAIT_MS}  # a machine that stands still for a while ends no connection
OURS = {**SIZES, **PATIENT, "mappedFileSizeConsumeQueue": 20_000, "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536}


@pytest.fixture(scope="module", autouse=True)
def available() -> None:
    needs.need()


@pytest.fixture
def bodies() -> list[bytes]:
    rng = random.Random(497)
    return [rng.randbytes(rng.choice([0, 1, 100, 1000, 6000])) for _ in range(700)]


def await_offset(cursor: Cursor, offset: int) -> None:
    wait_until(cursor, lambda reached: reached >= offset, WAIT_MS)


def counters_of(store: Path) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(store).region_directory, writable=True)


@pytest.fixture
def our_master(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path / "master", brokerRole="SYNC_MASTER", slaveTimeout=WAIT_MS, **OURS) as broker:
        yield broker


@pytest.mark.interop
def test_a_real_slave_receives_our_commit_log_byte_for_byte(
    our_master: LocalBroker, tmp_path: Path, bodies: list[bytes]
) -> None:
    counters = counters_of(our_master.store)
    settings = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": our_master.ha_address, **SIZES, **PATIENT}
    with (
        Producer(str(our_master.store), timeout=WAIT_MS / 1000) as producer,
        RocketMQBroker(tmp_path / "slave", **settings) as slave,
    ):
        wait_until(counters.in_sync_slaves, lambda count: count == 1, WAIT_MS)
        first = producer.send("interop", b"the first one is waited for", tags="TagA", keys="k1 k2")
        assert first.status.value == "PUT_OK", "acknowledged by a real slave"
        for number, body in enumerate(bodies):
            producer.send("interop", body, tags="TagB", properties={"n": str(number)}, queue_id=number % 4, wait=False)
        last = producer.send("interop", b"and the last one")
        assert last.status.value == "PUT_OK"
        end = counters.max_physical_offset.read()
        await_offset(counters.ha[0].slave_ack_offset, end)
        assert end > 3 * SEGMENT, "several segments, each ended by a blank record"
        slave.stop()
        ours = b"".join(path.read_bytes() for path in sorted((our_master.store / "commitlog").glob("0*")))[:end]
        assert slave.log_bytes(0, end, SEGMENT) == ours
        queues = sorted(path.name for path in (slave.home / "store" / "consumequeue" / "interop").iterdir())
        assert queues == ["0", "1", "2", "3"], "RocketMQ read our records into its consume queues"


@pytest.mark.interop
def test_our_slave_follows_a_real_master_byte_for_byte(tmp_path: Path, bodies: list[bytes]) -> None:
    settings = {"brokerRole": "ASYNC_MASTER", "brokerId": 0, **SIZES}
    with RocketMQBroker(tmp_path / "master", **settings) as master, Client(master.port) as client:
        first_end = client.send("interop", 0, b"before there is a slave")
        address = f"127.0.0.1:{master.ha_port}"
        with LocalBroker(tmp_path / "slave", brokerRole="SLAVE", brokerId=1, haMasterAddress=address, **OURS) as slave:
            counters = counters_of(slave.store)
            await_offset(counters.max_physical_offset, first_end + 1)
            for number, body in enumerate(bodies):
                last = client.send("interop", number % 4, body + b"!", f"TAGS\x01TagC\x02n\x01{number}\x02")
            size = int.from_bytes(master.log_bytes(last, last + 4, SEGMENT), "big")
            end = last + size
            await_offset(counters.max_physical_offset, end)
            await_offset(counters.reput_from_offset, end)
            assert end > 3 * SEGMENT
            assert counters.max_physical_offset.read() == end
        ours = b"".join(path.read_bytes() for path in sorted((slave.store / "commitlog").glob("0*")))[:end]
        assert ours == master.log_bytes(0, end, SEGMENT)
        assert [bytes(m.body)[:-1] for m in messages_of(slave.store, end)][1:] == bodies
