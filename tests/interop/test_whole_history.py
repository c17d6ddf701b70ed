"""Unmodified RocketMQ of both lines and a history of several segments: who attaches to it, or follows us, has all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.producer import Producer
from engine.protocol.ha.wire import CloseReason
from engine.shared_memory.cursors import BrokerCounters
from ipc.counters import Cursor
from store.notes import divergence
from store.reading import extent
from tests.harness.audit import messages_of
from tests.harness.conditions import await_that
from tests.harness.ha_node import wait_until
from tests.interop import needs, rocketmq
from tests.interop.remoting import Client
from tests.interop.rocketmq import NameServer, RocketMQBroker
from tools.common.local_broker import LocalBroker, free_port

SEGMENT, SEGMENTS = 64 * 1024, 5
SIZES = {"mappedFileSizeCommitLog": SEGMENT}
OURS = {
    **SIZES,
    "brokerName": "broker-a",
    "mappedFileSizeConsumeQueue": 20_000,
    "ringSizeInBytes": 1 << 20,
    "maxMessageSize": 16_384,
}
QUICK = {"haSendHeartbeatInterval": 1000}  # a RocketMQ master says with its heartbeat alone that it has nothing
SECONDS_MS = 180_000


@pytest.fixture(autouse=True, params=rocketmq.VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    needs.need([request.param])
    return str(request.param)


def counters_of(broker: LocalBroker) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)


@contextmanager
def slave_of(master: RocketMQBroker, directory: Path, version: str) -> Iterator[tuple[LocalBroker, BrokerCounters]]:
    settings = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": f"127.0.0.1:{master.ha_port}", **OURS}
    compat = "5" if rocketmq.is_five(version) else "4.9"
    with LocalBroker(directory, compat=compat, haReconnectInterval=200, **settings) as slave:
        yield slave, counters_of(slave)


def await_offset(cursor: Cursor, offset: int) -> None:
    wait_until(cursor, lambda reached: reached >= offset, SECONDS_MS)


def fill(master: RocketMQBroker, segments: int, seed: int = 1) -> int:
    """Send until that many segments are full; the log's end."""
    rng, last = random.Random(seed), 0
    with Client(master.port) as client:
        while last < segments * SEGMENT:
            last = client.send("history", rng.randrange(4), rng.randbytes(rng.choice([10, 500, 4000])), "TAGS\x01a\x02")
        size = int.from_bytes(master.log_bytes(last, last + 4, SEGMENT), "big")
    return last + size


def log_of(broker: LocalBroker) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((broker.store / "commitlog").glob("0*")))


@pytest.mark.interop
def test_a_new_slipstream_slave_has_all_that_a_real_master_has(version: str, tmp_path: Path) -> None:
    with RocketMQBroker(tmp_path / "m", version, brokerRole="ASYNC_MASTER", **SIZES) as master:
        end = fill(master, SEGMENTS)
        with slave_of(master, tmp_path / "s", version) as (slave, counters):
            await_offset(counters.max_physical_offset, end)
            await_offset(counters.reput_from_offset, end)
            assert (counters.min_physical_offset.read(), counters.max_physical_offset.read()) == (0, end)
            end = fill(master, SEGMENTS + 1, seed=2)
            await_offset(counters.max_physical_offset, end)
            assert log_of(slave)[:end] == master.log_bytes(0, end, SEGMENT)
            assert sum(message.topic == "history" for message in messages_of(slave.store, end)) > 100


@pytest.mark.interop
def test_where_a_real_master_has_deleted_its_first_segments_the_rest_is_searched(version: str, tmp_path: Path) -> None:
    settings = {"brokerRole": "ASYNC_MASTER", **SIZES, **QUICK}
    with RocketMQBroker(tmp_path / "m", version, **settings) as master:
        end = fill(master, SEGMENTS)
    for number in range(2):
        (master.home / "store" / "commitlog" / f"{number * SEGMENT:020d}").unlink()
    with (
        RocketMQBroker(tmp_path / "m", version, **settings) as master,
        slave_of(master, tmp_path / "s", version) as (slave, counters),
    ):
        wait_until(counters.max_physical_offset, lambda reached: reached >= end, SECONDS_MS)
        await_offset(counters.min_physical_offset, 2 * SEGMENT)
        assert counters.ha_client.ended[CloseReason.HISTORY_SEARCH].read() >= 2
        assert log_of(slave)[: end - 2 * SEGMENT] == master.log_bytes(2 * SEGMENT, end, SEGMENT)


@pytest.mark.interop
def test_a_real_master_that_lost_its_log_and_grew_past_us_is_another_history(version: str, tmp_path: Path) -> None:
    port = free_port()
    settings = {"brokerRole": "ASYNC_MASTER", "listenPort": port, **SIZES, **QUICK}
    with RocketMQBroker(tmp_path / "m", version, **settings) as master:
        end = fill(master, 2)
        with slave_of(master, tmp_path / "s", version) as (slave, counters):
            await_offset(counters.max_physical_offset, end)
            own = log_of(slave)[:end]
            master.kill()
            with RocketMQBroker(tmp_path / "wiped", version, **settings) as wiped:
                fill(wiped, 1, seed=7)
                wait_until(counters.ha_client.reason, lambda reason: reason == CloseReason.AHEAD, SECONDS_MS)
                assert counters.max_physical_offset.read() == end
                fill(wiped, 4, seed=8)
                wait_until(counters.ha_client.reason, lambda reason: reason == CloseReason.DIVERGED, SECONDS_MS)
                noted = divergence.read(slave.store)
                assert noted is not None and noted.end == end
                assert log_of(slave)[:end] == own, "not a byte of the other history"


@pytest.mark.interop
def test_an_empty_real_slave_has_all_of_our_log_with_ha_start_from_min(version: str, tmp_path: Path) -> None:
    with (
        NameServer(tmp_path / "names", version) as names,
        LocalBroker(
            tmp_path / "m",
            namesrvAddr=names.address,
            haStartFromMin=True,
            compat="5" if rocketmq.is_five(version) else "4.9",
            **OURS,
        ) as ours,
        Producer(str(ours.store), timeout=60.0) as producer,
    ):
        counters, number = counters_of(ours), 0
        while counters.max_physical_offset.read() < SEGMENTS * SEGMENT:
            producer.send("mine", f"{number} ".encode() * 300, queue_id=number % 4)
            number += 1
        end = counters.max_physical_offset.read()
        settings = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": names.address, **SIZES}
        with RocketMQBroker(tmp_path / "s", version, **settings) as slave:
            wait_until(counters.ha[0].slave_ack_offset, lambda acked: acked >= end, SECONDS_MS)
            await_that(lambda: slave.log_bytes(0, end, SEGMENT) == log_of(ours)[:end], "its bytes are ours")
