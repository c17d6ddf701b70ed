"""Stores in which a real broker left delayed and half messages: ours goes on with them, and does each of them once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.producer.producer import Producer
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.sending.end_transaction import Decision
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.service_cursors import TransactionCursors
from store.message.topics import HALF_TOPIC
from store.reading import extent
from store.reading.log_reader import open_log
from store.reading.summary import messages
from tests.harness.conditions import await_that
from tests.harness.deciding import Deciding
from tests.harness.front_client import FrontClient
from tests.store.golden import unpack
from tools.common.local_broker import LocalBroker

# What the store was made with; what is in it is old, and stays.
SETTINGS = {
    "mappedFileSizeCommitLog": 256 * 1024, "mappedFileSizeConsumeQueue": 4000, "maxHashSlotNum": 200,
    "maxIndexNum": 1000, "messageDelayLevel": "1s 60s 90s", "fileReservedTime": 1_000_000,
    "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536, "transactionTimeOut": 300, "transactionCheckInterval": 300,
    "transactionCheckMax": 1_000_000,  # none is given up before its producer is there
}  # fmt: skip
DELIVERED, DELAYED, COMMITTED, OPEN = 6, 50, range(3), range(6, 10)  # of halves 3 to 5 were rolled back
TIMEOUT = 60.0


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    FrontClient.close_all()


def transactions_of(broker: LocalBroker) -> TransactionCursors:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory).transactions


def count_of(broker: LocalBroker, topic: str) -> int:
    return sum(message.topic == topic for message in messages(open_log(broker.store)))


def in_topic(broker: LocalBroker) -> Counter[bytes]:
    return Counter(bytes(message.body) for message in messages(open_log(broker.store)) if message.topic == "pending")


def decide(producer: Deciding) -> None:
    """Commit every second one of those that it is asked about, until it was asked about all that are open."""
    asked = set()
    while asked != set(OPEN):
        body, at = producer.question()
        (number,) = map(int, re.findall(rb"half (\d)", body))
        asked.add(number)
        decision = Decision.ROLLBACK if number % 2 else Decision.COMMIT
        assert producer.end(at, decision, is_asked=True).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("version", "compat"), [("rocketmq-4.9.7", "4.9"), ("rocketmq-5.3.3", "5")])
def test_what_a_real_broker_left_pending_is_done_once(version: str, compat: str, tmp_path: Path) -> None:
    unpack(version, "pending", tmp_path / "b")
    wanted = [b"first %d" % number for number in range(DELIVERED)]
    wanted += [b"delayed %d" % number for number in range(DELAYED)]
    wanted += [b"half %d" % number for number in (*COMMITTED, *(number for number in OPEN if number % 2 == 0))]
    with LocalBroker(tmp_path / "b", **SETTINGS, compat=compat) as broker:
        decide(Deciding(broker.port, "deciders"))
        await_that(lambda: len(in_topic(broker)) >= len(wanted), "all is delivered, and decided")
        assert in_topic(broker) == dict.fromkeys(wanted, 1)
        words = transactions_of(broker)
        await_that(lambda: words.half_offset.read() == count_of(broker, HALF_TOPIC), "all copies are passed")
    with LocalBroker(tmp_path / "b", **SETTINGS, compat=compat) as broker:
        words = transactions_of(broker)
        with Producer(broker.store, timeout=TIMEOUT) as producer:
            producer.send("pending", b"later", delay_level=1)
        await_that(lambda: in_topic(broker)[b"later"] and words.rounds.read() > 1, "it goes on")
        assert in_topic(broker) == dict.fromkeys([*wanted, b"later"], 1)
        assert words.put_back.read() == 0, "nobody is asked again"
