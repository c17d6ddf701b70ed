"""Replication over a bad connection: cut at any byte, slow, or silent; ours with ours, and with RocketMQ 4.9.7."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine.producer import Producer
from engine.protocol.ha.client import HaClientState
from engine.protocol.ha.wire import CloseReason
from tests.harness.ha_node import wait_for, wait_until
from tests.interop import needs
from tests.interop.remoting import Client
from tests.interop.rocketmq import RocketMQBroker
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
from tests.net.proxy import Proxy
from tools.common.local_broker import LocalBroker

MESSAGES = 400
# Inside the first frame's header, on its end, inside its body; then anywhere.
BUDGETS = [1, 11, 12, 13, 24, 25, *random.Random(5).choices(range(13, 60_000), k=14)]


def test_a_connection_that_is_cut_anywhere_goes_on_where_it_was(tmp_path: Path) -> None:
    with (
        LocalBroker(tmp_path / "m", brokerRole="ASYNC_MASTER", **OURS | PATIENT) as master,
        Producer(str(master.store), timeout=60.0) as producer,
        Proxy(("127.0.0.1", master.port + 1), budgets=BUDGETS) as proxy,
    ):
        puts = Puts(producer)
        puts.many(1)
        with LocalBroker(tmp_path / "s", haMasterAddress=proxy.address, **SLAVE, **OURS | PATIENT) as slave:
            wait_for(counters_of(slave.store).max_physical_offset, 1)
            puts.many(MESSAGES)
            assert puts.one() == "PUT_OK"
            end = await_acknowledged(counters_of(master.store))
            assert proxy.cuts == len(BUDGETS) < proxy.connections
        assert_equal(master.store, slave.store, end, puts.count)


def test_a_waiting_put_times_out_behind_a_slow_slave(tmp_path: Path) -> None:
    with (
        LocalBroker(tmp_path / "m", **SYNC | PATIENT) as master,
        Producer(str(master.store), timeout=60.0) as producer,
        Proxy(("127.0.0.1", master.port + 1)) as proxy,
        LocalBroker(tmp_path / "s", haMasterAddress=proxy.address, **SLAVE, **OURS | PATIENT) as slave,
    ):
        counters, puts = counters_of(master.store), Puts(producer)
        wait_until(counters.in_sync_slaves, lambda count: count == 1)
        proxy.delay_seconds, proxy.chunk_bytes_max = 0.05, 500
        for _ in range(5):
            puts.until_held()
        proxy.delay_seconds, proxy.is_stalled = 0.0, True  # above slaveTimeout, below haHousekeepingInterval
        assert puts.one() == "FLUSH_SLAVE_TIMEOUT"
        proxy.is_stalled = False
        await_acknowledged(counters)
        puts.until_held()
        end = await_acknowledged(counters)
        assert proxy.connections == 1, "slow is no reason to hang up"
        assert_equal(master.store, slave.store, end, puts.count)


def test_a_connection_that_falls_silent_is_given_up_by_both_sides(tmp_path: Path) -> None:
    with (
        LocalBroker(tmp_path / "m", **SYNC) as master,
        Producer(str(master.store), timeout=60.0) as producer,
        Proxy(("127.0.0.1", master.port + 1)) as proxy,
        LocalBroker(tmp_path / "s", haMasterAddress=proxy.address, **SLAVE, **OURS) as slave,
    ):
        counters, client, puts = counters_of(master.store), counters_of(slave.store).ha_client, Puts(producer)
        wait_until(counters.in_sync_slaves, lambda count: count == 1)
        puts.until_held()
        proxy.is_stalled = True
        assert puts.one() in UNHELD
        wait_until(counters.in_sync_slaves, lambda count: count == 0)
        assert puts.one() == "SLAVE_NOT_AVAILABLE"
        wait_until(client.ended[CloseReason.HOUSEKEEPING], lambda count: count > 0)
        proxy.cut()
        proxy.is_stalled = False
        wait_until(client.state, lambda state: state == HaClientState.TRANSFER)
        wait_until(counters.in_sync_slaves, lambda count: count == 1)
        await_acknowledged(counters)
        puts.until_held()
        end = await_acknowledged(counters)
        assert_equal(master.store, slave.store, end, puts.count)


@pytest.mark.interop
def test_a_real_slave_of_a_slipstream_master_behind_a_cut_connection(tmp_path: Path) -> None:
    needs.need()
    with (
        LocalBroker(tmp_path / "m", **SYNC | PATIENT) as master,
        Producer(str(master.store), timeout=60.0) as producer,
        Proxy(("127.0.0.1", master.port + 1), budgets=[13, 100_000]) as proxy,
    ):
        puts = Puts(producer)
        puts.many(1)
        with RocketMQBroker(tmp_path / "s", haMasterAddress=proxy.address, **SLAVE, **SIZES | PATIENT) as slave:
            await_acknowledged(counters_of(master.store))  # before there is a second segment, with which it would begin
            puts.many(MESSAGES)
            await_acknowledged(counters_of(master.store))
            puts.until_held()
            end = await_acknowledged(counters_of(master.store))
            assert proxy.cuts == 2 < proxy.connections
        assert_equal(master.store, slave.store, end, puts.count)


@pytest.mark.interop
def test_our_slave_of_a_real_master_behind_a_connection_that_is_cut(tmp_path: Path) -> None:
    needs.need()
    with (
        RocketMQBroker(tmp_path / "m", brokerRole="ASYNC_MASTER", brokerId=0, **SIZES | PATIENT) as master,
        Client(master.port) as client,
        Proxy(("127.0.0.1", master.ha_port), budgets=BUDGETS) as proxy,
    ):
        client.send("Net", 0, b"before there is a slave")
        with LocalBroker(tmp_path / "s", haMasterAddress=proxy.address, **SLAVE, **OURS | PATIENT) as slave:
            counters = counters_of(slave.store)
            wait_for(counters.max_physical_offset, 1)
            for number in range(MESSAGES):
                last = client.send("Net", number % 4, random.Random(number).randbytes(number * 17 % 4000))
            end = last + int.from_bytes(master.log_bytes(last, last + 4, OURS["mappedFileSizeCommitLog"]), "big")
            wait_for(counters.max_physical_offset, end)
            assert proxy.cuts == len(BUDGETS) < proxy.connections
            assert_equal(master.store, slave.store, end, MESSAGES + 1)
