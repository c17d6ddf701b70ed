"""A RocketMQ slave follows a promotion of ours: the name server tells it where its master's log comes from now."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.producer import Producer
from store.errors import StoreError
from store.reading.log_reader import open_log
from tests.harness.command_line import run
from tests.harness.conditions import await_that
from tests.harness.killing import kill_broker
from tests.harness.served_names import Serving
from tests.interop import needs
from tests.interop.rocketmq import RocketMQBroker
from tools.common.local_broker import LocalBroker

SEGMENT, SECONDS = 256 * 1024, 300


@pytest.mark.interop
def test_a_real_slave_follows_the_promoted_master(tmp_path: Path) -> None:
    needs.need()
    names = Serving()
    settings = {
        "brokerName": "broker-a",
        "mappedFileSizeCommitLog": SEGMENT,
        "namesrvAddr": f"127.0.0.1:{names.port}",
        "haReconnectInterval": 100,
    }
    try:
        with (
            LocalBroker(tmp_path / "a", brokerRole="ASYNC_MASTER", **settings) as a,
            LocalBroker(tmp_path / "b", brokerRole="SLAVE", brokerId=1, **settings) as b,
        ):
            _put(a.store)
            java = {**settings, "brokerRole": "SLAVE", "brokerId": 2}
            del java["haReconnectInterval"]
            with RocketMQBroker(tmp_path / "java", **java) as slave:
                end = open_log(a.store).max_offset
                for store in (b.store, slave.home / "store"):
                    await_that(lambda store=store: end_of(store) == end, "both slaves have it", SECONDS)  # type: ignore[misc]
                kill_broker(a)
                assert run("promote", b.store, "--timeout", "300").exit_code == 0
                _put(b.store)
                end = open_log(b.store).max_offset
                await_that(lambda: end_of(slave.home / "store") == end, "RocketMQ's slave follows on", SECONDS)
                slave.stop()
            ran = run("replica", "check", b.store, "--with", slave.home / "store")
            assert ran.stdout.splitlines()[0] == "IDENTICAL", ran.output
    finally:
        names.stop()


def end_of(store: Path) -> int:
    """-1 where it cannot be told: a slave makes a segment's file and gives it its length afterwards."""
    try:
        return open_log(store).max_offset
    except StoreError:
        return -1


def _put(store: Path) -> None:
    with Producer(str(store), timeout=60.0) as producer:
        for number in range(200):
            producer.send("interop", b"%d of %s" % (number, store.parent.name.encode()))
