"""Master and slave on two hosts (network namespaces): partitions one way and both ways, and a link that is slow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.board.cursors import Board
from engine.producer import Producer
from engine.protocol.ha.wire import CloseReason
from tests.harness.ha_node import wait_for, wait_until
from tests.interop import needs
from tests.interop.rocketmq import RocketMQBroker
from tests.net import namespaces
from tests.net.namespaces import MASTER, Network
from tests.net.namespaces import SLAVE as SLAVE_HOST
from tests.net.pair import OURS, SIZES, SLAVE, SYNC, assert_equal, await_acknowledged, board_of, put, put_many
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


def is_given_up_and_comes_back(network: Network, board: Board, producer: Producer, *towards: str) -> None:
    network.cut(*towards)
    assert put(producer) == "FLUSH_SLAVE_TIMEOUT"
    wait_until(board.in_sync_slaves, lambda count: count == 0)
    assert put(producer) == "SLAVE_NOT_AVAILABLE"
    network.heal()
    wait_until(board.in_sync_slaves, lambda count: count == 1)
    await_acknowledged(board)
    assert put(producer) == "PUT_OK"


def test_a_partition_is_noticed_and_healed_whichever_way_it_cuts(network: Network, tmp_path: Path) -> None:
    with (
        on(network, MASTER, tmp_path / "m", **SYNC) as master,
        Producer(str(master.store), timeout=20.0) as producer,
        on(network, SLAVE_HOST, tmp_path / "s", **of(master), **OURS) as slave,
    ):
        board, client = board_of(master.store), board_of(slave.store).ha_client
        wait_until(board.in_sync_slaves, lambda count: count == 1)
        assert put(producer) == "PUT_OK"
        for towards in ((MASTER, SLAVE_HOST), (MASTER,), (SLAVE_HOST,)):
            is_given_up_and_comes_back(network, board, producer, *towards)
        assert client.ended[CloseReason.HOUSEKEEPING].read() > 0
        end = await_acknowledged(board)
        assert_equal(master.store, slave.store, end, 1 + 3 * 3)


def test_a_slow_link_carries_everything_and_who_waits_is_told(network: Network, tmp_path: Path) -> None:
    with (
        on(network, MASTER, tmp_path / "m", **SYNC) as master,
        Producer(str(master.store), timeout=20.0) as producer,
    ):
        board = board_of(master.store)
        with on(network, SLAVE_HOST, tmp_path / "s", **of(master), **OURS) as slave:
            wait_until(board.in_sync_slaves, lambda count: count == 1)
            assert put(producer) == "PUT_OK"
            network.limit("2mbit")
            put_many(producer, 350)  # some 700 KB: three seconds of that link, slaveTimeout is 1.5
            assert put(producer) == "FLUSH_SLAVE_TIMEOUT"
            end = board.max_physical_offset.read()
            slave.process.kill()
            slave.process.wait()
            wait_until(board.in_sync_slaves, lambda count: count == 0)
        with on(network, SLAVE_HOST, tmp_path / "s", **of(master), **OURS) as slave:
            wait_for(board_of(slave.store).max_physical_offset, end)
            await_acknowledged(board)
            assert put(producer) == "PUT_OK"
            end = await_acknowledged(board)
        assert_equal(master.store, slave.store, end, 353)


@pytest.mark.interop
def test_a_real_slave_behind_a_partition_and_a_slow_link(network: Network, tmp_path: Path) -> None:
    needs.need()

    class There(RocketMQBroker):
        """RocketMQ's broker on the slave's host."""

        def command(self) -> list[str]:
            return [*network.inside(SLAVE_HOST), *super().command()]

    with on(network, MASTER, tmp_path / "m", **SYNC) as master, Producer(str(master.store), timeout=20.0) as producer:
        board = board_of(master.store)
        put_many(producer, 1)
        own = {"brokerIP1": SLAVE_HOST, "brokerIP2": SLAVE_HOST}
        with There(tmp_path / "s", **own, **of(master), **SIZES) as slave:
            wait_until(board.in_sync_slaves, lambda count: count == 1)
            await_acknowledged(board)
            is_given_up_and_comes_back(network, board, producer, MASTER, SLAVE_HOST)
            network.limit("2mbit")
            put_many(producer, 350)
            assert put(producer) == "FLUSH_SLAVE_TIMEOUT"
            await_acknowledged(board)
            network.unlimit()
            assert put(producer) == "PUT_OK"
            end = await_acknowledged(board)
        assert_equal(master.store, slave.store, end, 1 + 3 + 350 + 2)
