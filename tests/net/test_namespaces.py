"""Master and slave on two hosts (network namespaces): partitions one way and both ways, and a link that is slow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.producer import Producer
from engine.protocol.ha.wire import CloseReason
from engine.shared_memory.cursors import BrokerCounters
from tests.harness.ha_node import wait_for, wait_until
from tests.interop import needs
from tests.interop.rocketmq import RocketMQBroker
from tests.net import namespaces
from tests.net.namespaces import MASTER, Network
from tests.net.namespaces import SLAVE as SLAVE_HOST
from tests.net.pair import (
    OURS,
    PATIENT,
    SIZES,
    SLAVE,
    SYNC,
    UNHELD,
    Puts,
    assert_equal,
    await_acknowledged,
    counters_of,
)
from tools.common.local_broker import LocalBroker


@pytest.fixture
def network() -> Iterator[Network]:
    reason = namespaces.missing()
    if reason is not None:
        pytest.skip(reason)
    with Network() as made:
        yield made


def on(network: Network, host: str, directory: Path, **keys: Any) -> LocalBroker:
    """Our broker on that host."""
    return LocalBroker(directory, inside=network.inside(host), brokerIP1=host, brokerIP2=host, **keys)


def of(master: LocalBroker) -> dict[str, Any]:
    """What a slave on the other host says in its file."""
    return {"haMasterAddress": f"{MASTER}:{master.port + 1}", **SLAVE}


def is_given_up_and_comes_back(network: Network, counters: BrokerCounters, puts: Puts, *towards: str) -> str:
    """What the first put was told."""
    network.cut(*towards)
    first = puts.one()
    assert first in UNHELD
    wait_until(counters.in_sync_slaves, lambda count: count == 0)
    assert puts.one() == "SLAVE_NOT_AVAILABLE"
    network.heal()
    wait_until(counters.in_sync_slaves, lambda count: count == 1)
    await_acknowledged(counters)
    puts.until_held()
    return first


def test_a_partition_is_noticed_and_healed_whichever_way_it_cuts(network: Network, tmp_path: Path) -> None:
    with (
        on(network, MASTER, tmp_path / "m", **SYNC) as master,
        Producer(str(master.store), timeout=60.0) as producer,
        on(network, SLAVE_HOST, tmp_path / "s", **of(master), **OURS) as slave,
    ):
        counters, client, puts = counters_of(master.store), counters_of(slave.store).ha_client, Puts(producer)
        wait_until(counters.in_sync_slaves, lambda count: count == 1)
        puts.until_held()
        ways = ((MASTER, SLAVE_HOST), (MASTER,), (SLAVE_HOST,))
        told = [is_given_up_and_comes_back(network, counters, puts, *towards) for towards in ways]
        assert "FLUSH_SLAVE_TIMEOUT" in told
        wait_until(client.ended[CloseReason.HOUSEKEEPING], lambda count: count > 0)
        end = await_acknowledged(counters)
        assert_equal(master.store, slave.store, end, puts.count)


def test_a_slow_link_carries_everything_and_waiting_puts_time_out(network: Network, tmp_path: Path) -> None:
    with (
        on(network, MASTER, tmp_path / "m", **SYNC | PATIENT) as master,
        Producer(str(master.store), timeout=60.0) as producer,
    ):
        counters, puts = counters_of(master.store), Puts(producer)
        with on(network, SLAVE_HOST, tmp_path / "s", **of(master), **OURS | PATIENT) as slave:
            wait_until(counters.in_sync_slaves, lambda count: count == 1)
            puts.until_held()
            network.limit("1mbit")
            puts.many(700)  # some 1.4 MB: eleven seconds of that link, slaveTimeout is 1.5
            assert puts.one() == "FLUSH_SLAVE_TIMEOUT"
            end = counters.max_physical_offset.read()
            slave.process.kill()
            slave.process.wait()
            wait_until(counters.in_sync_slaves, lambda count: count == 0)
        with on(network, SLAVE_HOST, tmp_path / "s", **of(master), **OURS | PATIENT) as slave:
            wait_for(counters_of(slave.store).max_physical_offset, end)
            await_acknowledged(counters)
            puts.until_held()
            end = await_acknowledged(counters)
        assert_equal(master.store, slave.store, end, puts.count)


@pytest.mark.interop
def test_a_real_slave_behind_a_partition_and_a_slow_link(network: Network, tmp_path: Path) -> None:
    needs.need()

    class There(RocketMQBroker):
        """RocketMQ's broker on the slave's host."""

        def command(self) -> list[str]:
            return [*network.inside(SLAVE_HOST), *super().command()]

    with on(network, MASTER, tmp_path / "m", **SYNC) as master, Producer(str(master.store), timeout=60.0) as producer:
        counters, puts = counters_of(master.store), Puts(producer)
        puts.many(1)
        own = {"brokerIP1": SLAVE_HOST, "brokerIP2": SLAVE_HOST}
        with There(tmp_path / "s", **own, **of(master), **SIZES) as slave:
            wait_until(counters.in_sync_slaves, lambda count: count == 1)
            await_acknowledged(counters)
            is_given_up_and_comes_back(network, counters, puts, MASTER, SLAVE_HOST)
            network.limit("1mbit")
            puts.many(700)
            assert puts.one() == "FLUSH_SLAVE_TIMEOUT"
            await_acknowledged(counters)
            network.unlimit()
            puts.until_held()
            end = await_acknowledged(counters)
        assert_equal(master.store, slave.store, end, puts.count)
