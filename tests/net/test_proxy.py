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
from tests.net.pair import OURS, SIZES, SLAVE, SYNC, assert_equal, await_acknowledged, board_of, put, put_many
from tests.net.proxy import Proxy
from tools.common.local_broker import LocalBroker

MESSAGES = 400
# Inside the first frame's header, on its end, inside its body; then anywhere.
BUDGETS = [1, 11, 12, 13, 24, 25, *random.Random(5).choices(range(13, 60_000), k=14)]


def test_a_connection_that_is_cut_anywhere_goes_on_where_it_was(tmp_path: Path) -> None:
    with (
        LocalBroker(tmp_path / "m", brokerRole="ASYNC_MASTER", **OURS) as master,
        Producer(str(master.store), timeout=20.0) as producer,
        Proxy(("127.0.0.1", master.port + 1), budgets=BUDGETS) as proxy,
    ):
        put_many(producer, 1)
        with LocalBroker(tmp_path / "s", haMasterAddress=proxy.address, **SLAVE, **OURS) as slave:
            wait_for(board_of(slave.store).max_physical_offset, 1)
            put_many(producer, MESSAGES)
            assert put(producer) == "PUT_OK"
            end = await_acknowledged(board_of(master.store))
            assert proxy.cuts == len(BUDGETS) < proxy.connections
        assert_equal(master.store, slave.store, end, MESSAGES + 2)


def test_who_waits_is_told_how_slow_the_slave_is(tmp_path: Path) -> None:
    with (
        LocalBroker(tmp_path / "m", **SYNC) as master,
        Producer(str(master.store), timeout=20.0) as producer,
        Proxy(("127.0.0.1", master.port + 1)) as proxy,
        LocalBroker(tmp_path / "s", haMasterAddress=proxy.address, **SLAVE, **OURS) as slave,
    ):
        board = board_of(master.store)
        wait_until(board.in_sync_slaves, lambda count: count == 1)
        proxy.delay_seconds, proxy.chunk_bytes_max = 0.05, 500
        assert [put(producer) for _ in range(5)] == ["PUT_OK"] * 5
        proxy.delay_seconds = 1.0  # there and back: above slaveTimeout, below haHousekeepingInterval
        assert put(producer) == "FLUSH_SLAVE_TIMEOUT"
        proxy.delay_seconds = 0.0
        await_acknowledged(board)
        assert put(producer) == "PUT_OK"
        end = await_acknowledged(board)
        assert proxy.connections == 1, "slow is no reason to hang up"
        assert_equal(master.store, slave.store, end, 7)


def test_a_connection_that_falls_silent_is_given_up_by_both_sides(tmp_path: Path) -> None:
    with (
        LocalBroker(tmp_path / "m", **SYNC) as master,
        Producer(str(master.store), timeout=20.0) as producer,
        Proxy(("127.0.0.1", master.port + 1)) as proxy,
        LocalBroker(tmp_path / "s", haMasterAddress=proxy.address, **SLAVE, **OURS) as slave,
    ):
        board, client = board_of(master.store), board_of(slave.store).ha_client
        wait_until(board.in_sync_slaves, lambda count: count == 1)
        assert put(producer) == "PUT_OK"
        proxy.is_stalled = True
        assert put(producer) == "FLUSH_SLAVE_TIMEOUT"
        wait_until(board.in_sync_slaves, lambda count: count == 0)
        assert put(producer) == "SLAVE_NOT_AVAILABLE"
        wait_until(client.ended[CloseReason.HOUSEKEEPING], lambda count: count > 0)
        proxy.cut()
        proxy.is_stalled = False
        wait_until(client.state, lambda state: state == HaClientState.TRANSFER)
        wait_until(board.in_sync_slaves, lambda count: count == 1)
        end = await_acknowledged(board)
        assert put(producer) == "PUT_OK"
        end = await_acknowledged(board)
        assert_equal(master.store, slave.store, end, 4)


@pytest.mark.interop
def test_a_real_slave_of_ours_behind_a_connection_that_is_cut(tmp_path: Path) -> None:
    needs.need()
    with (
        LocalBroker(tmp_path / "m", **SYNC) as master,
        Producer(str(master.store), timeout=20.0) as producer,
        Proxy(("127.0.0.1", master.port + 1), budgets=[13, 100_000]) as proxy,
    ):
        put_many(producer, 1)
        with RocketMQBroker(tmp_path / "s", haMasterAddress=proxy.address, **SLAVE, **SIZES) as slave:
            await_acknowledged(board_of(master.store))  # before there is a second segment, with which it would begin
            put_many(producer, MESSAGES)
            await_acknowledged(board_of(master.store))
            assert put(producer) == "PUT_OK"
            end = await_acknowledged(board_of(master.store))
            assert proxy.cuts == 2 < proxy.connections
        assert_equal(master.store, slave.store, end, MESSAGES + 2)


@pytest.mark.interop
def test_our_slave_of_a_real_master_behind_a_connection_that_is_cut(tmp_path: Path) -> None:
    needs.need()
    with (
        RocketMQBroker(tmp_path / "m", brokerRole="ASYNC_MASTER", brokerId=0, **SIZES) as master,
        Client(master.port) as client,
        Proxy(("127.0.0.1", master.ha_port), budgets=BUDGETS) as proxy,
    ):
        client.send("Net", 0, b"before there is a slave")
        with LocalBroker(tmp_path / "s", haMasterAddress=proxy.address, **SLAVE, **OURS) as slave:
            board = board_of(slave.store)
            wait_for(board.max_physical_offset, 1)
            for number in range(MESSAGES):
                last = client.send("Net", number % 4, random.Random(number).randbytes(number * 17 % 4000))
            end = last + int.from_bytes(master.log_bytes(last, last + 4, OURS["mappedFileSizeCommitLog"]), "big")
            wait_for(board.max_physical_offset, end)
            assert proxy.cuts == len(BUDGETS) < proxy.connections
            assert_equal(master.store, slave.store, end, MESSAGES + 1)
