"""Delayed messages and half messages where a slave becomes the master, and the master a slave: each is done once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from engine.monitoring.ha_status import ha_status
from engine.producer.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from store.message.record import Message
from store.message.topics import HALF_TOPIC
from store.reading import extent
from store.reading.log_reader import open_log
from store.reading.summary import messages
from tests.harness.command_line import run
from tests.harness.conditions import await_that
from tools.common.local_broker import LocalBroker

COMMON = {
    "brokerName": "pair", "mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536,
    "haReconnectInterval": 100, "messageDelayLevel": "4s 1s", "transactionTimeOut": 500,
    "transactionCheckInterval": 300, "transactionCheckMax": 1_000_000,  # on a slow machine it is asked about for long
}  # fmt: skip
SERVICES = ("delay", "transactions")
TIMEOUT = 60.0


def counters_of(broker: LocalBroker) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory)


def services_of(broker: LocalBroker) -> list[str]:
    """Those that run."""
    counters = counters_of(broker)
    return [name for name in SERVICES if counters.pids[name].read()]


def all_of(broker: LocalBroker, topic: str) -> list[Message]:
    return [message for message in messages(open_log(broker.store)) if message.topic == topic]


def switch(slave: LocalBroker, *options: str) -> None:
    ran = run("promote", slave.store, "--switch", *options)
    assert ran.exit_code == 0, ran.output


@pytest.mark.crash
def test_services_run_at_the_current_master(tmp_path: Path) -> None:
    with (
        LocalBroker(tmp_path / "a", brokerRole="SYNC_MASTER", **COMMON) as a,
        LocalBroker(tmp_path / "b", brokerRole="SLAVE", brokerId=1, haMasterAddress=a.ha_address, **COMMON) as b,
    ):
        await_that(lambda: services_of(a) == list(SERVICES), "the master's services")
        await_that(lambda: ha_status(a.store).in_sync_slaves, "a slave is in sync")
        assert services_of(b) == []
        with Producer(a.store, timeout=TIMEOUT) as producer:
            for number in range(20):
                producer.send("t", b"a%d" % number, delay_level=1 + number % 2)
            producer.send_half("t", b"open", group="g")
        switch(b)
        await_that(lambda: services_of(b) == list(SERVICES), "they begin with the promotion")
        await_that(lambda: services_of(a) == [], "and end with it")
        with Producer(b.store, timeout=TIMEOUT) as producer:
            for number in range(20):
                producer.send("t", b"b%d" % number, delay_level=2)
        await_that(lambda: len(all_of(b, "t")) >= 40, "all are delivered")
        put_back = counters_of(b).transactions.put_back
        await_that(lambda: put_back.read() > 0, "the half message is asked about")
        switch(a, "--master", f"127.0.0.1:{b.port}")
        await_that(lambda: (services_of(a), services_of(b)) == (list(SERVICES), []), "back again")
        halves = len(all_of(a, HALF_TOPIC))
        await_that(lambda: len(all_of(a, HALF_TOPIC)) > halves, "it is asked about by the master of today")
        times = Counter(bytes(message.body) for message in all_of(a, "t"))
        assert times == dict.fromkeys((b"%s%d" % (who, number) for who in (b"a", b"b") for number in range(20)), 1)
